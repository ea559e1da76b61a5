"""Result files of other load generators, read as figures that say by which formula they were computed.

:func:`pinchpoint.record.imports.read.read_results` reads a file or a folder; one module per tool knows its keys.
"""
