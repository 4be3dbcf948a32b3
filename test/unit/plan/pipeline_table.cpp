// SPDX-License-Identifier: BSL-1.0
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/pipeline_table.hpp>
#include <heddle/plan/words.hpp>

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

using namespace heddle;

TEST_CASE("a pipeline plan's table") {
    pipeline_plan p;
    p.provenance.planner = "amp";
    p.provenance.model = "small";
    p.provenance.cluster = "two";
    p.provenance.version = "x";
    p.layers = {{"stem"}, {"block.0"}, {"block.1"}};
    p.devices = {{"fast", 0, bytes(2e9), bytes(16e9)},
                 {"fast", 0, bytes(2e9), bytes(16e9)},
                 {"slow", 1, bytes(1e9), bytes(8e9)},
                 {"slow", 1, bytes(1e9), bytes(8e9)}};
    p.stages = {{0, 1, {{0}, {1}}, seconds(0.01), seconds(0)}, {1, 3, {{2}, {3}}, seconds(0.02), seconds(0.001)}};
    p.micro_batches = 4;
    p.micro_batch_size = 2;
    p.time = {seconds(0.1), seconds(0.01)};
    p.bubble = 0.25;
    p.lower_bound = 0.1;
    p.status = search::status::feasible;
    p.baselines["other"] = 0.22;
    p.statistics["shapes"] = 3;
    std::ostringstream out;
    print(out, p, {.times = false});
    CHECK(out.str() == R"(model                  small, 3 layers
cluster                two, 4 devices
planner                amp (heddle x)
status                 feasible
pipeline               2 stages, 2 copies, 4 micro-batches of 2 samples
seconds per iteration  0.110000
  of it gradients      0.010000
idle                   25.0 % of the pipeline's time
lower bound            0.100000
gap                    9.09 %

What to do
  pipeline       2 stages, 4 micro-batches, one forward, one backward
  data parallel  2 copies of the pipeline, each with a part of the batch,
                 gradients summed
  stage 0        2 x fast (0-1), layer 0
  stage 1        2 x slow (2-3), layers 1-2

Stages (milliseconds of one micro-batch)
  stage  layers                       time  entered in  devices
      0  0       stem               10.000              0 1
      1  1-2     block.0 - block.1  20.000       1.000  2 3

Devices (memory in GB)
  device  type  stage   used   limit  used %
  0-1     fast      0  2.000  16.000    12.5
  2-3     slow      1  1.000   8.000    12.5

Baselines
          seconds
  other  0.220000  2.00 times the plan

Search
  shapes 3

Seconds are predicted; 1 GB is 1e9 bytes; entered in: what a micro-batch takes
to come from the stage before.
)");
    p.devices.push_back({"slow", 1, bytes(0), bytes(8e9)});
    p.stages = {{0, 3, {{0, 1, 2, 3}}, seconds(0.03), seconds(0)}};
    auto const words = words_of(p);
    REQUIRE(words.size() == 3);
    CHECK(words[1].text == "1 of 5 devices");
    CHECK(words[2].text == "2 x fast, 2 x slow (0-3), layers 0-2: tensor parallel");
}
