"""Plans for the runtimes of other projects: exported files, rewritten models, adapters."""
