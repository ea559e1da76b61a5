"""What is read on the host itself, with the standard library only: ``pinchpoint agent --print`` joins these modules
into one file that runs on a node where nothing is installed.

Modules here import nothing but the standard library and each other.
"""
