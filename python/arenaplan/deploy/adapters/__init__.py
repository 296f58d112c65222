"""
Plans for other projects' compilers, through the compilers' own interfaces.

Each module can be imported without the served project, which is imported when a function is called.
"""
