// `loom doctor`: what it makes of an Open MPI (a script stands for ompi_info), of this host, and of several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/component/temporary_file.hpp"
#include "tools/doctor/machine.hpp"
#include "tools/doctor/open_mpi.hpp"
#include "tools/doctor/report.hpp"
#include "tools/doctor/subprocess.hpp"

namespace loom::tools {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

auto says(Verdict verdict, const std::string& topic, const std::string& what) {
  return Contains(testing::AllOf(Field(&Finding::verdict, verdict), Field(&Finding::topic, topic),
                                 Field(&Finding::what, HasSubstr(what))));
}

class Doctor : public test::WithFiles {
 protected:
  std::string script(const char* name, const std::string& text) const {
    const std::string path = temporary(name, "#!/bin/sh\n" + text + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  /// An ompi_info of this version. with_plugin: "", or what finds it: the line of a shell's `if`.
  std::string ompi_info(const std::string& version, const std::string& finds_plugin,
                        const std::string& more = "", const std::string& errors = "") const {
    const std::string path = temporary("ompi_info", R"(#!/bin/sh
case "$*" in
  --parsable) echo "ompi:version:full:)" + version + R"(" ;;
  *"--path pkglibdir"*) echo "path:pkglibdir:/usr/lib/openmpi" ;;
  *"--param coll loom"*)
    if )" + finds_plugin + R"(; then
      echo 'mca:coll:loom:version:"mca:2.1.0"'
      echo 'mca:coll:loom:version:"component:1.2.3"'
      )" + more + R"(
    else
      echo ')" + errors + R"(' >&2
    fi ;;
  *"--param coll all"*) )" + more + R"( ;;
esac
)");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  OpenMpi look(const std::string& info, const std::string& plugin_folder = "") {
    return look_at_open_mpi({.ompi_info = info,
                             .mpirun = mpirun_,
                             .built_for = "4.1.4",
                             .version = "1.2.3",
                             .plugin_folder = plugin_folder},
                            findings_);
  }

  std::string mpirun_ = "/absent";
  Findings findings_;
};

const char* const kEnabled =
    "echo mca:coll:loom:param:coll_loom_enable:value:true; echo "
    "mca:coll:loom:param:coll_loom_enable:source:environment";

TEST_F(Doctor, IsContentWithAPluginThatIsFoundAndEnabled) {
  mpirun_ = script("mpirun", "echo 'mpirun (Open MPI) 4.1.6'");
  EXPECT_TRUE(look(ompi_info("4.1.6", "true", kEnabled)).has_plugin);
  EXPECT_THAT(findings_.all(), says(Verdict::kFine, "Open MPI", "4.1.6"));
  EXPECT_THAT(findings_.all(), says(Verdict::kFine, "plugin", "1.2.3"));
  EXPECT_THAT(findings_.all(), says(Verdict::kFine, "enabled", "environment"));
  EXPECT_EQ(findings_.count(Verdict::kFails), 0U);
}

TEST_F(Doctor, SaysThatThereIsNoOpenMpi) {
  EXPECT_FALSE(look(temporary("absent")).has_plugin);
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "Open MPI", "no ompi_info"));
}

TEST_F(Doctor, SaysThatAnotherMpiIsFirstOnThePath) {
  EXPECT_FALSE(look(script("ompi_info", "echo MPICH")).has_plugin);
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "Open MPI", "no version"));
}

TEST_F(Doctor, SaysThatThePluginWasBuiltForAnotherSeries) {
  look(ompi_info("5.0.7", "true", kEnabled));
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "Open MPI", "5.0.7, but this loom was built for 4.1.4"));
}

TEST_F(Doctor, SaysThatMpirunIsAnotherMpis) {
  mpirun_ = script("mpirun", "echo 'HYDRA build details:'");
  look(ompi_info("4.1.4", "true", kEnabled));
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "mpirun", "HYDRA"));
}

TEST_F(Doctor, SaysThatThePluginIsNotFound) {
  EXPECT_FALSE(look(ompi_info("4.1.4", "false")).has_plugin);
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "plugin", "finds none in /usr/lib/openmpi"));
}

TEST_F(Doctor, SaysWhereThePluginIsIfOpenMpiDoesNotLookThere) {
  const OpenMpi found =
      look(ompi_info("4.1.4", "[ -n \"$OMPI_MCA_mca_base_component_path\" ]", kEnabled), "/somewhere/lib");
  EXPECT_TRUE(found.has_plugin);
  EXPECT_EQ(found.path, "/somewhere/lib:/usr/lib/openmpi");
  EXPECT_THAT(findings_.all(), says(Verdict::kWarning, "plugin", "does not look where it is"));
}

TEST_F(Doctor, SaysWhyThePluginDoesNotLoad) {
  look(ompi_info("4.1.4", "false", "", "unable to open mca_coll_loom: libucp.so.0: cannot open (ignored)"));
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "plugin", "libucp.so.0: cannot open"));
}

TEST_F(Doctor, KnowsAPluginOfAnotherSeries) {
  look(ompi_info(
      "4.1.4", "false", "",
      "unable to open mca_coll_loom: libopen-pal.so.80: cannot open shared object file: No such file"));
  EXPECT_THAT(findings_.all(),
              says(Verdict::kFails, "plugin", "another series of Open MPI, with libopen-pal.so.80"));
}

TEST_F(Doctor, SaysWhichValueOpenMpiRefuses) {
  look(ompi_info("4.1.4", "false", "",
                 "An invalid value was supplied for an enum variable.\n  Variable     : coll_loom_enable\n"
                 "  Value        : yess\n  Valid values : 0: no, 1: yes"));
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "parameters",
                                    "coll_loom_enable is \"yess\", which is none of 0: no, 1: yes"));
  EXPECT_THAT(findings_.all(), Not(Contains(Field(&Finding::topic, "plugin"))));
}

TEST_F(Doctor, SaysThatAFolderOfTheComponentPathIsNotThere) {
  ::setenv("OMPI_MCA_mca_base_component_path", "/tmp:/absent", 1);
  EXPECT_FALSE(look(ompi_info("4.1.4", "true", kEnabled)).has_plugin);
  ::unsetenv("OMPI_MCA_mca_base_component_path");
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "component path", "names /absent, which is not there"));
}

TEST_F(Doctor, NamesVariablesThatLoomDoesNotHave) {
  ::setenv("OMPI_MCA_coll_loom_enabel", "1", 1);
  look(ompi_info("4.1.4", "true", kEnabled));
  ::unsetenv("OMPI_MCA_coll_loom_enabel");
  EXPECT_THAT(findings_.all(), says(Verdict::kWarning, "parameters",
                                    "OMPI_MCA_coll_loom_enabel is set, and loom has no such variable"));
}

TEST_F(Doctor, SaysWhyMpirunDoesNotStart) {
  mpirun_ = script("mpirun", "echo 'mpirun: Error: unknown option' >&2; exit 1");
  look(ompi_info("4.1.4", "true", kEnabled));
  EXPECT_THAT(findings_.all(),
              says(Verdict::kFails, "mpirun", "it does not start: mpirun: Error: unknown option"));
}

TEST_F(Doctor, SaysThatLoomIsOffAndWhatLeavesItOut) {
  look(ompi_info(
      "4.1.4", "true",
      "echo mca:coll:loom:param:coll_loom_enable:value:false; echo "
      "mca:coll:loom:param:coll_loom_enable:source:default; echo mca:coll:base:param:coll:value:^loom,han"));
  EXPECT_THAT(findings_.all(), says(Verdict::kWarning, "enabled", "0 (default)"));
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "components", "leaves loom out"));
}

TEST_F(Doctor, TellsWhichParametersAreSet) {
  look(ompi_info("4.1.4", "true",
                 std::string(kEnabled) + "; echo mca:coll:loom:param:coll_loom_tune:value:all:ring; echo "
                                         "\"mca:coll:loom:param:coll_loom_tune:source:file (/etc/x.conf)\""));
  EXPECT_THAT(findings_.all(),
              says(Verdict::kFine, "parameters", "coll_loom_tune = all:ring (file (/etc/x.conf))"));
}

TEST_F(Doctor, LooksAtTheLimitsOfAContainer) {
  const std::filesystem::path limit = temporary("cpu.max", "5000 100000\n");
  look_at_host(findings_, false, limit.parent_path().string());
  EXPECT_THAT(findings_.all(), says(Verdict::kWarning, "CPUs", "the container's limit is 0.1"));
}

TEST_F(Doctor, LooksAtSharedMemory) {
  look_at_host(findings_, false, "/sys/fs/cgroup", temporary("absent"));
  EXPECT_THAT(findings_.all(), says(Verdict::kWarning, "shared memory", "there is no"));
}

TEST_F(Doctor, KnowsThePortsOfUcx) {
  look_at_network({{.name = "lo"}}, findings_);
  EXPECT_THAT(findings_.all(), says(Verdict::kWarning, "network", "no port beside the loopback"));
  look_at_network({{.name = "mlx5_0", .port = 1, .speed_mbps = 400000}, {.name = "eth0"}}, findings_);
  EXPECT_THAT(findings_.all(),
              says(Verdict::kFine, "network", "2 ports for UCX: mlx5_0:1 (400 Gbit/s), eth0"));
}

TEST_F(Doctor, KnowsTheWordsOfTheComponentPath) {
  const auto look_with = [&](const char* path) {
    ::setenv("OMPI_MCA_mca_base_component_path", path, 1);
    findings_ = {};
    look(ompi_info("4.1.4", "true", kEnabled));
    ::unsetenv("OMPI_MCA_mca_base_component_path");
  };
  look_with("/tmp:SYSTEM_DEFAULT:USER_DEFAULT");
  EXPECT_THAT(findings_.all(), says(Verdict::kFine, "plugin", "1.2.3"));
  look_with("/tmp:/absent");
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "component path", "/absent"));
}

TEST_F(Doctor, TellsNoParameterThatIsNotSet) {
  look(ompi_info("4.1.4", "true", kEnabled));
  EXPECT_THAT(findings_.all(), Not(Contains(Field(&Finding::topic, "parameters"))));
}

TEST_F(Doctor, KnowsWhichTransportsLeadToOtherHosts) {
  const auto look = [&](const char* transports) {
    ::setenv("UCX_TLS", transports, 1);
    look_at_network({{.name = "eth0"}}, findings_);
    ::unsetenv("UCX_TLS");
  };
  for (const char* transports : {"rc_mlx5,self", "^cma", "all"}) {
    look(transports);
    EXPECT_THAT(findings_.all(), says(Verdict::kFine, "network", transports));
  }
  look("sm,self");
  EXPECT_THAT(findings_.all(), says(Verdict::kWarning, "network", "\"sm,self\": none of these leads"));
}

TEST_F(Doctor, SaysThatThereAreNoGpus) {
  look_at_gpus({.cuda = "libabsent.so"}, "", findings_);
  EXPECT_THAT(findings_.all(), says(Verdict::kFine, "GPUs", "host memory"));
}

TEST(DoctorsReport, GoesThroughLines) {
  Findings findings;
  findings.fine("CPUs", "4");
  findings.warn("enabled", "no,\tnot yet", "turn it\non");
  Findings again;
  add_lines("noise\n" + lines_of(findings) + "a\tb\tc\td\n", again);
  EXPECT_THAT(again.all(),
              testing::ElementsAre(Finding{Verdict::kFine, "CPUs", "4", ""},
                                   Finding{Verdict::kWarning, "enabled", "no, not yet", "turn it on"}));
}

TEST(DoctorsReport, NamesTheHostsThatDiffer) {
  Findings small, large;
  small.fine("GPUs", "none");
  small.warn("CPUs", "1", "more");
  large.fine("GPUs", "none");
  large.fine("CPUs", "8");
  const Findings all = merged({{"a", large}, {"b", small}, {"c", large}});
  EXPECT_THAT(all.all(), testing::ElementsAre(Finding{Verdict::kFine, "GPUs", "none", ""},
                                              Finding{Verdict::kFine, "CPUs", "a, c: 8", ""},
                                              Finding{Verdict::kWarning, "CPUs", "b: 1", "more"}));
}

TEST(DoctorsReport, EndsWithWhetherLoomRuns) {
  Findings findings;
  findings.fine("a", "b");
  EXPECT_THAT(text_of(findings, "here"), HasSubstr("loom runs here.\n"));
  findings.warn("a", "b", "c");
  EXPECT_THAT(text_of(findings, "here"), HasSubstr("loom runs here. See 1 line marked"));
  findings.need_options("--mca a b");
  EXPECT_THAT(text_of(findings, "here"), HasSubstr("loom runs here with: mpirun --mca a b ./app\n"));
  findings.warn(kEnabledTopic, "b", "c");
  EXPECT_THAT(text_of(findings, "here"),
              HasSubstr("it is off: mpirun --mca a b --mca coll_loom_enable 1 ./app\n"));
  findings.fails("a", "b", "c");
  EXPECT_THAT(text_of(findings, "here"), HasSubstr("will not run here: see 1 line"));
}

TEST(Subprocess, TakesBothOutputsAndTheExitCode) {
  const Ended ended =
      run({"sh", "-c", "echo out; echo $MINE >&2; exit 3"}, std::chrono::seconds(10), {"MINE=err"});
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_EQ(ended.out, "out\n");
  EXPECT_EQ(ended.err, "err\n");
}

TEST(Subprocess, IsEndedWhenItTakesTooLong) {
  EXPECT_EQ(run({"sh", "-c", "sleep 100"}, std::chrono::seconds(1)).exit_code, Ended::kTookTooLong);
  EXPECT_EQ(run({"sh", "-c", "exec >&- 2>&-; sleep 100"}, std::chrono::seconds(1)).exit_code,
            Ended::kTookTooLong);
}

TEST(Subprocess, MayNotBeThereOrDie) {
  EXPECT_EQ(run({"/absent"}, std::chrono::seconds(1)).exit_code, Ended::kNotStarted);
  EXPECT_EQ(run({"sh", "-c", "kill -9 $$"}, std::chrono::seconds(10)).exit_code, 128 + 9);
}

}  // namespace
}  // namespace loom::tools
