# Makes a wheel, or sources whose build makes that wheel, and prints the name of the file.
# Arguments: wheel|sources NAME VERSION TEXT OUTSIDE. The program NAME of the package prints TEXT. The build of sources
# tries to write the file OUTSIDE first.
import io
import sys
import tarfile
import zipfile

WHEEL = '''
import zipfile

def make_wheel(directory, name, version, text):
    module = name.replace("-", "_")
    information = f"{module}-{version}.dist-info"
    files = {
        f"{module}.py": f"def main():\\n    print({text!r})\\n",
        f"{information}/METADATA": f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{information}/entry_points.txt": f"[console_scripts]\\n{name} = {module}:main\\n",
    }
    record = "".join(f"{path},,\\n" for path in [*files, f"{information}/RECORD"])
    file = f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(f"{directory}/{file}", "w") as archive:
        for path, content in {**files, f"{information}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(path), content)
    return file
'''

BACKEND = '''
def build_wheel(directory, config_settings=None, metadata_directory=None):
    try:
        with open({outside!r}, "w") as file:
            file.write("x")
    except OSError:
        pass
    return make_wheel(directory, {name!r}, {version!r}, {text!r})

def get_requires_for_build_wheel(config_settings=None):
    return []
'''

PROJECT = '''
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
'''

kind, name, version, text, outside = sys.argv[1:]
if kind == "wheel":
    exec(WHEEL)
    print(make_wheel(".", name, version, text))
else:
    top = f"{name.replace('-', '_')}-{version}"
    backend = WHEEL + BACKEND.format(name=name, version=version, text=text, outside=outside)
    files = {
        "backend.py": backend,
        "pyproject.toml": PROJECT,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    with tarfile.open(f"{top}.tar.gz", "w:gz") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(f"{top}/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    print(f"{top}.tar.gz")
