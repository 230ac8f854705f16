"""The `cafenet` command, one module per subcommand."""
