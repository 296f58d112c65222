"""Plans for other projects' runtimes: exported files, rewritten models, adapters."""
