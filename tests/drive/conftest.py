from drive_kit import drive, odd

__all__ = ["drive", "odd"]
