"""The intermediate representation: nodes, views and traversal."""
