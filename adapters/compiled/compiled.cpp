// SPDX-License-Identifier: BSL-1.0
// What headers declare elsewhere where HEDDLE_COMPILED is defined.
#include <heddle/planner/hidup.hpp>

namespace heddle {

template relaxation_bounds improve_bounds<serial>(priced_graph const&, int, std::optional<multipliers> const&, search::deadline const&);
template relaxation_bounds improve_bounds<overlapped>(priced_graph const&, int, std::optional<multipliers> const&, search::deadline const&);
template relaxation_bounds improve_bounds<duplex>(priced_graph const&, int, std::optional<multipliers> const&, search::deadline const&);

template synthesis_result synthesise<serial>(priced_graph const&, synthesis_options const&);
template synthesis_result synthesise<overlapped>(priced_graph const&, synthesis_options const&);
template synthesis_result synthesise<duplex>(priced_graph const&, synthesis_options const&);

namespace detail {

template plan run_hap<serial>(indexed_program const&, cluster const&, ratio_balancer const&, planning_options const&, std::optional<ratio_table> const&);
template plan run_hap<overlapped>(indexed_program const&, cluster const&, ratio_balancer const&, planning_options const&, std::optional<ratio_table> const&);
template plan run_hidup<duplex>(indexed_program const&, cluster const&, ratio_balancer const&, planning_options const&, std::optional<ratio_table> const&);

} // namespace detail

} // namespace heddle
