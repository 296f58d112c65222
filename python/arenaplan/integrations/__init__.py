"""Plans carried out by frameworks: steps that their compilers run as a schedule says."""
