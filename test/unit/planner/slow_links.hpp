// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <heddle/cluster/cluster.hpp>

namespace heddle::test {

/// Equal devices on slow links.
[[nodiscard]] inline cluster slow_links(int devices) {
    cluster c;
    c.types = {{"device",
                bytes(16e9),
                bytes_per_second(5e11),
                seconds(5e-6),
                {{element_type::float32, {flops_per_second(1e13)}}}}};
    c.machines = {{0, 1, devices}};
    c.inter = network_link{bytes_per_second(1e9), seconds(5e-5)};
    return c;
}

} // namespace heddle::test
