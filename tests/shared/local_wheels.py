"""Wheels in a folder, where pip finds them without network."""

import zipfile


def write_wheel(folder, name, version, files):
    """Write a wheel that requires a package that nobody has; `files` maps paths to text or bytes."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"Name: {name}\nVersion: {version}\nRequires-Dist: nowhere-to-be-had\n"
    with zipfile.ZipFile(path, "w") as wheel:
        record = ""
        for place, content in files.items():
            wheel.writestr(zipfile.ZipInfo(place), content)  # without the time: the same digest each time
            record += f"{place},,{len(content.encode() if isinstance(content, str) else content)}\n"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\n{about}")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{record}{info}/METADATA,,1\n")  # pip does not believe it either
    return path
