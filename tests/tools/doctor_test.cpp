// `loom doctor`: what it makes of an Open MPI (a script stands for ompi_info), of this host, and of several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "tests/component/temporary_file.hpp"
#include "tools/doctor/elf_file.hpp"
#include "tools/doctor/local_job.hpp"
#include "tools/doctor/machine.hpp"
#include "tools/doctor/open_mpi.hpp"
#include "tools/doctor/report.hpp"
#include "tools/doctor/settings.hpp"
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
  *"--param mca base"*)
    echo 'mca:mca:base:param:mca_base_component_path:value:"/absent:)" +
                                                        folder_ + R"("'
    echo 'mca:mca:base:param:mca_base_param_files:value:/absent,)" +
                                                        parameter_file_ + R"(' ;;
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

  /// An mpirun whose ranks find the plugin if this shell's condition holds.
  std::string mpirun(const std::string& finds_plugin, const std::string& lines_of_ranks) const {
    return script("mpirun",
                  "if " + finds_plugin + "; then\n" + lines_of_ranks +
                      "\nelse printf 'fails\\tplugin\\tthere is none on rank 0\\tinstall it\\n'; fi");
  }
  void look_at_job(const std::string& mpirun, const OpenMpi& open_mpi) {
    look_at_local_job({.mpirun = mpirun, .program = "/bin/true"}, open_mpi, findings_);
  }
  /// A shared library, of which the last bytes are missing.
  std::string truncated(const std::string& name, std::uintmax_t missing) const {
    const std::string path = temporary(name.c_str());
    std::filesystem::copy_file("/proc/self/exe", path, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - missing);
    return path;
  }

  std::string mpirun_ = "/absent";
  std::string folder_;          ///< of the plugin, as the path of ompi_info has it
  std::string parameter_file_;  ///< that Open MPI reads
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

TEST_F(Doctor, GuessesWhichVariableWasMeant) {
  for (const auto& [written, meant] :
       {std::pair("coll_loom_timeot", "coll_loom_timeout"), std::pair("coll_loom_enabel", "coll_loom_enable"),
        std::pair("loom_verbose", "coll_loom_verbose")}) {
    findings_ = {};
    look_at_settings(
        {{.name = written, .text = "1", .where = ""}}, [](auto&) { return std::nullopt; }, findings_);
    ASSERT_EQ(findings_.all().size(), 1U);
    EXPECT_EQ(findings_.all()[0].cure, std::string("did you mean ") + meant + "?");
  }
  findings_ = {};
  look_at_settings(
      {{.name = "coll_loom_colour", .text = "1", .where = ""}}, [](auto&) { return std::nullopt; },
      findings_);
  EXPECT_EQ(findings_.all()[0].cure, "docs/parameters.md has the names");
}

TEST_F(Doctor, WarnsOfNumbersThatOpenMpiReadsOtherwise) {
  parameter_file_ = temporary("mca-params.conf", R"(# coll_loom_lane_bytes = none
  coll_loom_memory_limit = 1.5m
coll_loom_timeout = 5 min
coll_loom_overlap_bytes=64k
)");
  const auto set = [](const char* name, const char* value) {
    return std::string("; echo mca:coll:loom:param:coll_loom_") + name + ":value:" + value +
           "; echo mca:coll:loom:param:coll_loom_" + name + ":source:somewhere";
  };
  ::setenv("OMPI_MCA_coll_loom_timeout", "abc", 1);
  look(ompi_info("4.1.4", "true",
                 kEnabled + set("timeout", "0.000000") + set("memory_limit", "1") +
                     set("overlap_bytes", "65536") + set("lane_bytes", "1")));
  ::unsetenv("OMPI_MCA_coll_loom_timeout");
  EXPECT_THAT(findings_.all(),
              says(Verdict::kWarning, "parameters",
                   "coll_loom_timeout = abc (environment) is not a number; Open MPI takes it as 0"));
  EXPECT_THAT(findings_.all(), says(Verdict::kWarning, "parameters",
                                    "coll_loom_memory_limit = 1.5m (" + parameter_file_ +
                                        ") is not a number; Open MPI takes it as 1"));
  EXPECT_THAT(findings_.all(), says(Verdict::kFine, "parameters", "coll_loom_overlap_bytes = 65536"));
  EXPECT_THAT(findings_.all(), Not(says(Verdict::kFine, "parameters", "coll_loom_timeout")));
  EXPECT_THAT(findings_.all(), Not(Contains(Field(&Finding::what, HasSubstr("5 min")))));
}

TEST_F(Doctor, WarnsOfValuesThatLoomDoesNotTake) {
  const std::vector<std::array<const char*, 3>> wrong = {
      {"timeout", "-5", "is out of range (0 or more); loom takes 0"},
      {"priority", "500", "is out of range (0 to 100); loom takes 90"},
      {"priority", "1k", "is out of range (0 to 100); loom takes 90"},
      {"verbose", "-3", "is out of range (0 or more); loom takes 0"},
      {"lane_bytes", "-1", "is out of range (0 or more); loom takes 64 MiB"},
      {"memory", "banana", "is out of range (auto, host); loom takes auto"},
      {"exclude", "bcast,foo", "names \"foo\", which is no collective; loom ignores it"},
      {"include", "^foo", "names \"foo\", which is no collective; loom ignores it"}};
  const auto look_with = [&](const std::string& name, const std::string& value) {
    findings_ = {};
    const std::string variable = "coll_loom_" + name, parameter = "; echo mca:coll:loom:param:" + variable;
    ::setenv(("OMPI_MCA_" + variable).c_str(), value.c_str(), 1);
    look(ompi_info("4.1.4", "true",
                   kEnabled + parameter + ":value:'" + value + "'" + parameter + ":source:environment"));
    ::unsetenv(("OMPI_MCA_" + variable).c_str());
  };
  for (const auto& [name, value, what] : wrong) {
    look_with(name, value);
    EXPECT_THAT(findings_.all(),
                says(Verdict::kWarning, "parameters",
                     std::string("coll_loom_") + name + " = " + value + " (environment) " + what));
    EXPECT_THAT(findings_.all(), Not(says(Verdict::kFine, "parameters", name)));
  }
  for (const auto& [name, value] :
       {std::pair("timeout", "0.5"), std::pair("priority", "100"), std::pair("verbose", "2"),
        std::pair("lane_bytes", "3g"), std::pair("memory", "host"), std::pair("exclude", "^bcast, alltoall"),
        std::pair("tune", "all:ring")}) {
    look_with(name, value);
    EXPECT_THAT(findings_.all(), says(Verdict::kFine, "parameters", name));
    EXPECT_THAT(findings_.all(), Not(says(Verdict::kWarning, "parameters", "")));
  }
}

TEST_F(Doctor, TellsOfWrongRulesOnce) {
  look(ompi_info("4.1.4", "true",
                 std::string(kEnabled) + "; echo mca:coll:loom:param:coll_loom_tune:value:all:rings; echo "
                                         "mca:coll:loom:param:coll_loom_tune:source:environment"));
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "parameters", "rings"));
  EXPECT_THAT(findings_.all(), Not(says(Verdict::kFine, "parameters", "coll_loom_tune")));
}

TEST_F(Doctor, NamesTheFileFromWhichMpirunHasAVariable) {
  const std::string file = temporary("mca-params.conf", "coll_loom_timeout = abc\ncoll_loom_priority = 5\n");
  ::setenv("OMPI_MCA_coll_loom_timeout", "abc", 1);
  ::setenv("OMPI_MCA_coll_loom_priority", "6", 1);
  const std::vector<Setting> all = settings_of_loom({file});
  ::unsetenv("OMPI_MCA_coll_loom_timeout");
  ::unsetenv("OMPI_MCA_coll_loom_priority");
  const auto has = [](const char* name, const char* text, const std::string& where) {
    return Contains(testing::AllOf(Field(&Setting::name, name), Field(&Setting::text, text),
                                   Field(&Setting::where, where)));
  };
  EXPECT_THAT(all, has("coll_loom_timeout", "abc", file));
  EXPECT_THAT(all, has("coll_loom_priority", "6", ""));
}

TEST_F(Doctor, SaysThatAPluginIsTruncated) {
  folder_ = std::filesystem::path(temporary("any")).parent_path().string();
  const std::string plugin = truncated("mca_coll_loom.so", 1);
  ::setenv("OMPI_MCA_mca_base_component_path", folder_.c_str(), 1);
  look(script("ompi_info", "kill -BUS $$"));
  ::unsetenv("OMPI_MCA_mca_base_component_path");
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "plugin",
                                    "ompi_info dies of signal 7 (Bus error) as it loads " + plugin));
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "plugin", " bytes"));
  EXPECT_THAT(findings_.all(), Not(Contains(Field(&Finding::topic, "Open MPI"))));
}

TEST_F(Doctor, SaysThatThePluginOfABuildFolderIsTruncated) {
  const std::string plugin = truncated("mca_coll_loom.so", 100);
  look(ompi_info("4.1.4", "[ -n \"$OMPI_MCA_mca_base_component_path\" ] && kill -BUS $$"),
       std::filesystem::path(plugin).parent_path().string());
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "plugin", "as it loads " + plugin));
}

TEST_F(Doctor, SaysThatOmpiInfoDies) {
  look(script("ompi_info", "[ \"$OMPI_MCA_coll\" = ^loom ] || kill -SEGV $$"));
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "plugin",
                                    "dies of signal 11 (Segmentation fault) as it loads loom's plugin"));
  look(script("ompi_info", "kill -SEGV $$"));
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "Open MPI", "dies of signal 11"));
}

TEST_F(Doctor, KnowsWholeSharedLibraries) {
  EXPECT_EQ(damage_of(truncated("whole", 0)), "");
  const std::uintmax_t bytes = std::filesystem::file_size(temporary("whole"));
  EXPECT_EQ(damage_of(truncated("half", bytes / 2)),
            "it has " + std::to_string(bytes - bytes / 2) + " of " + std::to_string(bytes) + " bytes");
  EXPECT_EQ(damage_of(temporary("text", "text")), "it is no shared library");
  EXPECT_EQ(damage_of(temporary("absent")), "it cannot be read: No such file or directory");
}

TEST_F(Doctor, HasACureForAPluginThatMayNotBeRead) {
  look(ompi_info("4.1.4", "false", "",
                 "unable to open mca_coll_loom: /x/mca_coll_loom.so: cannot open shared object file: "
                 "Permission denied (ignored)"));
  ASSERT_THAT(findings_.all(), says(Verdict::kFails, "plugin", "Permission denied"));
  EXPECT_THAT(findings_.all(), Contains(Field(&Finding::cure, HasSubstr("chmod a+r"))));
}

TEST_F(Doctor, SaysThatRanksDoNotLookWhereOpenMpiFindsThePlugin) {
  folder_ = std::filesystem::path(temporary("mca_coll_loom.so", "any")).parent_path().string();
  const OpenMpi open_mpi = look(ompi_info("5.0.7", "true", kEnabled));
  EXPECT_THAT(findings_.all(), says(Verdict::kFine, "plugin", "1.2.3 from " + folder_));
  findings_ = {};
  look_at_job(mpirun("[ \"$5 $6\" = 'mca_base_component_path " + folder_ + "' ]",
                     "printf 'fine\\tcalls\\tby loom\\t\\n'"),
              open_mpi);
  const std::string options =
      "--mca mca_base_component_path " + folder_ + " --pmixmca mca_base_component_show_load_errors none";
  EXPECT_THAT(
      findings_.all(),
      testing::ElementsAre(
          testing::AllOf(
              Field(&Finding::verdict, Verdict::kWarning), Field(&Finding::topic, "ranks"),
              Field(&Finding::cure, HasSubstr(options + "; or OMPI_MCA_mca_base_component_path=" + folder_))),
          Finding{Verdict::kFine, "calls", "by loom", ""}));
  EXPECT_EQ(findings_.options(), options);
}

TEST_F(Doctor, QuotesPathsForTheShell) {
  EXPECT_EQ(component_path_options("4.1.4", "/opt/loom-1.2/lib:/usr/lib/c++_x"),
            "--mca mca_base_component_path /opt/loom-1.2/lib:/usr/lib/c++_x");
  EXPECT_EQ(component_path_options("4.1.4", "/my folder:$x/it's"),
            "--mca mca_base_component_path '/my folder:$x/it'\\''s'");
  EXPECT_EQ(component_path_words("4.1.4", "/my folder")[2], "/my folder");
}

TEST_F(Doctor, TellsWhatIsWrongOnceTheRanksFindThePlugin) {
  look_at_job(mpirun("[ \"$5\" = mca_base_component_path ]", R"(printf 'fails\tcalls\tits set-up failed\t\n'
    printf '%s\n' '------' 'loom cannot set up a communicator.' '' '  Communicator: X' '  Cause:        coll_loom_tune: There is' '  no such algorithm.' '' 'Remove the cause.' '------' >&2)"),
              {.version = "5.0.7", .has_plugin = true, .path = {}, .plugin_path = "/x"});
  EXPECT_THAT(findings_.all(), says(Verdict::kWarning, "ranks", "/x"));
  EXPECT_THAT(findings_.all(), Contains(Finding{Verdict::kFails, "calls", "its set-up failed",
                                                "coll_loom_tune: There is no such algorithm."}));
  EXPECT_THAT(findings_.all(), Not(Contains(Field(&Finding::topic, "plugin"))));
}

TEST_F(Doctor, BlamesSharedMemoryForAJobThatFails) {
  const std::string dies = script("mpirun", R"(printf 'it ends\n\000\n\n' >&2; exit 1)");
  look_at_job(dies, {.version = "4.1.4"});
  EXPECT_THAT(findings_.all(), says(Verdict::kFails, "job", "a job of 2 ranks fails: it ends"));
  findings_ = {};
  findings_.warn(kSharedMemoryTopic, "/dev/shm has 1 MiB left", "remount it");
  look_at_job(dies, {.version = "4.1.4"});
  EXPECT_THAT(findings_.all(),
              testing::ElementsAre(Finding{Verdict::kFails, "shared memory",
                                           "/dev/shm has 1 MiB left; a job of 2 ranks fails: it ends",
                                           "remount it"}));
}

TEST(LastWords, AreAParagraphWithoutRulesAndNuls) {
  EXPECT_EQ(last_words_of("first\n\n  the\n last\n------\n\n"), "the last");
  EXPECT_EQ(last_words_of(std::string("words\n\0\n \n\0", 11)), "words");
  EXPECT_EQ(last_words_of(std::string("\0\n--\n", 5)), "it says nothing");
  const std::string epitaph =
      "\n----\nprterun has exited due to process rank 0 with PID 0 on node a calling\n\"abort\".\n----\n";
  EXPECT_EQ(last_words_of("the cause\n" + epitaph), "the cause");
  EXPECT_EQ(last_words_of("There is not enough space.\n\n  Local host: a\n  Space Requested: 16 B\n  Space "
                          "Available: 1 B\n---\nlater" +
                          epitaph),
            "Open MPI wants more shared memory than there is: Space Requested: 16 B Space Available: 1 B");
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
  add_lines("noise\n" + std::string(1, '\0') + lines_of(findings) + "a\tb\tc\td\n", again);
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
