"""Files as the store uses them: the file system as a seam, and chains of files of one
size.
"""
