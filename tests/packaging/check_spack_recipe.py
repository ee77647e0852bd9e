#!/usr/bin/env python3
"""check_spack_recipe.py ROOT -- the Spack recipe names options that loom's build has, with values that they take.

Runs the recipe with stand-ins for Spack's modules. Where there is a Spack on PATH, it also resolves the recipe, with and
without its variants, in a configuration of its own.
"""
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path

root = Path(sys.argv[1])
repository = root / "packaging/spack/spack_repo/loom"
recipe = repository / "packages/openmpi_loom/package.py"


class Folder(str):
    def __getattr__(self, name):
        return Folder(f"{self}/{name}")


class Spec:
    """As much of a Spack spec as the recipe asks for."""

    def __init__(self, variants, architectures):
        self.on = variants
        self.architectures = architectures
        self.prefix = Folder("/opt/package")
        self.variants = {"cuda_arch": types.SimpleNamespace(value=architectures or ("none",))}

    def __contains__(self, text):
        return text[0] == "+" and text[1:] in self.on

    def __getitem__(self, name):
        return Spec(set(), ())

    def satisfies(self, text):
        assert text == "cuda_arch=none", text
        return not self.architectures


def load():
    directives = {"variant": [], "depends_on": [], "version": []}
    package = types.ModuleType("spack.package")
    for name in ("variant", "depends_on", "version", "license", "generator"):
        package.__dict__[name] = lambda *args, _name=name, **more: directives.setdefault(_name, []).append((args, more))
    stand_ins = {"spack": types.ModuleType("spack"), "spack.package": package}
    for name in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        stand_ins[name] = types.ModuleType(name)
    cmake = types.ModuleType("spack_repo.builtin.build_systems.cmake")
    cmake.CMakePackage = type("CMakePackage", (), {"define": lambda self, name, value: (name, value)})
    cuda = types.ModuleType("spack_repo.builtin.build_systems.cuda")
    cuda.CudaPackage = type("CudaPackage", (), {})
    sys.modules.update(stand_ins, **{cmake.__name__: cmake, cuda.__name__: cuda})
    spec = importlib.util.spec_from_file_location("recipe", recipe)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, directives


def options_of_the_build():
    """Names of cache variables, and the values of those that take certain ones."""
    text = "\n".join(path.read_text() for path in [root / "CMakeLists.txt", *sorted((root / "cmake").glob("*.cmake"))])
    values = {name: {"AUTO", "ON", "OFF", *more.split()}
              for name, more in re.findall(r'^loom_option\((\w+) "[^"]*"([^)]*)\)', text, re.MULTILINE)}
    names = set(values) | {"BUILD_TESTING"} | set(re.findall(r"^set\((LOOM_\w+) [^)]* CACHE ", text, re.MULTILINE))
    return names | set(re.findall(r"^find_program\((LOOM_\w+)", text, re.MULTILINE)), values


module, directives = load()
names, values = options_of_the_build()
assert {args[0] for args, _ in directives["variant"]} == {"ptx"} and directives["version"], directives
assert "LOOM_CUDA_ARCHITECTURES" in names and "nvcc" in values["LOOM_CUDA"], (names, values)
seen = set()
for variants in (set(), {"cuda"}, {"ptx"}, {"cuda", "ptx"}):
    for architectures in ((), ("80", "90")):
        package = module.OpenmpiLoom()
        package.spec, package.prefix = Spec(variants, architectures), Folder("/opt/loom")
        for name, value in package.cmake_args():
            assert name in names, f"the build has no option {name}"
            assert name not in values or value in values[name], f"{name} does not take {value}"
            seen.add((name, value))
        path = {}
        package.setup_run_environment(types.SimpleNamespace(set=path.__setitem__))
        assert path == {"OMPI_MCA_mca_base_component_path": "/opt/loom/components:/opt/package/lib/openmpi"}, path
assert {value for name, value in seen if name == "LOOM_CUDA"} == {"ON", "OFF", "nvcc", "clang"}, seen
assert ("LOOM_CUDA_ARCHITECTURES", "80;90") in seen, seen
assert module.OpenmpiLoom.git == root.resolve().as_uri(), module.OpenmpiLoom.git
print("the recipe and the build agree")

spack = shutil.which("spack")
if not spack:
    print("there is no Spack on PATH: the recipe is not resolved")
    sys.exit()
with tempfile.TemporaryDirectory() as home:
    environment = dict(os.environ, SPACK_USER_CONFIG_PATH=home, SPACK_USER_CACHE_PATH=home)
    subprocess.run([spack, "repo", "add", str(repository)], env=environment, check=True)
    for variants in ("", "+ptx", "+cuda cuda_arch=90"):
        subprocess.run([spack, "spec", f"openmpi-loom {variants}"], env=environment, check=True)
