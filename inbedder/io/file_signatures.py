"""Recognition of files by their first bytes, whatever their names are."""

from __future__ import annotations

import zipfile

from inbedder.errors import InputError, format_value

SIGNATURE_BYTES = 16
"""Number of bytes that contain every signature."""
GZIP_SIGNATURE = b"\x1f\x8b"
SIGNATURES = {
    b"PAR1": ".parquet",
    b"PK\x03\x04": ".zip",
    GZIP_SIGNATURE: ".gz",
    b"BZh": ".bz2",
    b"\xfd7zXZ\x00": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"7z\xbc\xaf\x27\x1c": ".7z",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ".xls",
    b"ARROW1": ".arrow",
    b"\x93NUMPY": ".npy",
    b"SQLite format 3\x00": ".sqlite",
    b"%PDF-": ".pdf",
    b"\x89PNG": ".png",
    b"\xff\xd8\xff": ".jpg",
}
"""The file type of each signature."""
OFFICE_FOLDERS = {"xl/": ".xlsx", "word/": ".docx", "ppt/": ".pptx", "content.xml": ".ods"}
"""The file type of an archive that has an entry whose name begins so."""
BINARY_TYPES = (".parquet", ".xlsx")
"""File types that are read and are not text."""
PACKED_TYPES = (".zip", ".gz", ".bz2", ".xz", ".zst", ".7z")


def detect_file_type(head: bytes, path: str | None = None) -> str | None:
    """Detect a file's suffix from its first bytes and an archive's entries, if the path is known; None for text."""
    file_type = next((suffix for signature, suffix in SIGNATURES.items() if head.startswith(signature)), None)
    if file_type != ".zip" or path is None:
        return file_type
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        return file_type
    return next((suffix for start, suffix in OFFICE_FOLDERS.items() if any(name.startswith(start) for name in names)), file_type)


def check_signature(source: str, head: bytes, expected: str, path: str | None = None) -> None:
    """Reject a file whose first bytes are those of another type than its name promises, such as ".csv"."""
    actual_type = detect_file_type(head, path)
    if actual_type in (None, expected) or (actual_type, expected) == (".zip", ".xlsx"):  # a damaged workbook
        return
    if actual_type in BINARY_TYPES:
        advice = f"Rename it to end in {actual_type}."
    else:
        advice = "Unpack it first." if actual_type in PACKED_TYPES else "Save it as .csv or .xlsx."
    name = format_value(source)
    raise InputError(f"{name} is not a {expected} file: its first bytes are those of a {actual_type} file. {advice}")
