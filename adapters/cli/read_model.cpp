// SPDX-License-Identifier: BSL-1.0
// Model files, by their content.
#include "plan_input.hpp"

#ifdef HEDDLE_HAS_PT2
#include <heddle/pt2/model.hpp>
#endif

namespace heddle::cli {

json::model read_model(std::string const& path) {
#ifdef HEDDLE_HAS_PT2
    return pt2::read_model(path);
#else
    return json::read_model(path);
#endif
}

} // namespace heddle::cli
