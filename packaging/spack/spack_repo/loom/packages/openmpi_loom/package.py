from pathlib import Path

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class OpenmpiLoom(CMakePackage, CudaPackage):
    """loom, a collectives component for Open MPI: shared memory inside a host, UCX between hosts, kernels on GPUs."""

    # The clone of loom in which this recipe lies. A source archive is none: give the address of a repository.
    git = Path(__file__).resolve().parents[6].as_uri()

    license("BSD-3-Clause")
    version("main", branch="main")

    variant("ptx", default=False, description="Kernels for GPUs as PTX, made by clang without the CUDA Toolkit")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cli11", type="build")
    depends_on("highway", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("llvm@14: +clang", type="build", when="+ptx")
    depends_on("openmpi@4.1:6")
    depends_on("pmix", when="^openmpi@5:")
    depends_on("fmt")
    depends_on("hwloc")
    depends_on("pugixml")
    depends_on("ucx")
    depends_on("ucx +cuda +gdrcopy", when="+cuda")

    generator("ninja")

    def cmake_args(self):
        kernels = {(True, True): "ON", (True, False): "nvcc", (False, True): "clang", (False, False): "OFF"}
        args = [
            self.define("BUILD_TESTING", False),
            self.define("LOOM_OPENMPI", "ON"),
            self.define("LOOM_CUDA", kernels["+cuda" in self.spec, "+ptx" in self.spec]),
            self.define("LOOM_MPICC", self.spec["openmpi"].prefix.bin.mpicc),
        ]
        if "+cuda" in self.spec and not self.spec.satisfies("cuda_arch=none"):
            args.append(self.define("LOOM_CUDA_ARCHITECTURES", ";".join(self.spec.variants["cuda_arch"].value)))
        return args

    def setup_run_environment(self, env):
        # A path that is given takes the place of Open MPI's own.
        env.set("OMPI_MCA_mca_base_component_path",
                f"{self.prefix.components}:{self.spec['openmpi'].prefix.lib.openmpi}")
