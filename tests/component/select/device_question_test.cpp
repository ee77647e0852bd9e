#include "component/select/device_question.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace loom {
namespace {

/// How many of so many calls ask, with this answer each time.
int questions(DeviceQuestion& question, int calls, bool answer) {
  int asked = 0;
  for (int i = 0; i < calls; ++i) {
    if (!question.asks()) continue;
    ++asked;
    question.answered(answer);
  }
  return asked;
}

TEST(DeviceQuestion, IsAskedSeldomInProgramsOnHostMemory) {
  DeviceQuestion question;
  std::vector<int> asked;
  for (int call = 0; call < 20; ++call) {
    if (!question.asks()) continue;
    asked.push_back(call);
    question.answered(false);
  }
  EXPECT_EQ(asked, (std::vector{0, 2, 5, 10, 19}));
  questions(question, 1000, false);
  EXPECT_LE(questions(question, 100 * 257, false), 100);
  // And never not at all.
  EXPECT_GE(questions(question, 257, false), 1);
}

TEST(DeviceQuestion, IsAskedBeforeEachCallOnGpus) {
  DeviceQuestion question;
  EXPECT_EQ(questions(question, 100, true), 100);
  // One rank has another buffer now and then.
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(questions(question, 10, false), 10);
    EXPECT_EQ(questions(question, 1, true), 1);
  }
  // Nobody has GPU buffers any longer.
  questions(question, 5000, false);
  EXPECT_LE(questions(question, 10 * 257, false), 10);
  // Until they are back.
  while (!question.asks()) {
  }
  question.answered(true);
  EXPECT_EQ(questions(question, 100, true), 100);
}

TEST(DeviceQuestions, AreApartForCollectivesAndSizes) {
  DeviceQuestions questions;
  using device::Collective;
  EXPECT_NE(&questions.of(Collective::kAllreduce, 8), &questions.of(Collective::kBroadcast, 8));
  EXPECT_NE(&questions.of(Collective::kAllreduce, 8), &questions.of(Collective::kAllreduce, 64));
  EXPECT_EQ(&questions.of(Collective::kAllreduce, 2048), &questions.of(Collective::kAllreduce, 8191));
  // Of these ranks may take different sizes for one, and go on.
  for (const auto collective : {Collective::kBroadcast, Collective::kAllGatherV})
    EXPECT_EQ(&questions.of(collective, 8), &questions.of(collective, 1 << 20));
  questions.of(Collective::kAllToAllW, ~std::size_t{0}).answered(false);
}

}  // namespace
}  // namespace loom
