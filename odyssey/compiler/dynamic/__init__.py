"""One program for all sizes of arguments that are declared to vary."""
