// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Ranks on GPUs: the communicator on NCCL, and what its ranks meet by.
#pragma once

#include <heddle/nccl/communicator.hpp>
#include <heddle/nccl/cuda.hpp>
#include <heddle/nccl/launch.hpp>
#include <heddle/nccl/store.hpp>
#include <heddle/nccl/tcp_store.hpp>
