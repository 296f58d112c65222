"""
Plans for the compilers of other projects, handed over through their own interfaces.

Each module here can be imported without the project that it serves, which is imported when
a function is called.
"""
