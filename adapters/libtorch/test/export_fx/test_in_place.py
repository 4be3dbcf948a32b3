#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Changes in place, and names that share storage."""

import unittest

from exports import ExportCase, F, calls, torch


class InPlace(ExportCase):
    def test_in_place_changes_become_values(self):
        def forward(self, x):
            y = x * 2
            other_name = y
            y += self.weight
            y.relu_().unsqueeze_(0)
            return other_name.sum()

        model = self.export_function(forward)
        self.assertEqual(calls(model), ["operator.mul", "operator.add", "relu", "unsqueeze", "sum"])
        self.assertEqual(model["nodes"][-2]["inputs"], [model["nodes"][-3]["id"]])
        self.assertEqual([node["out"]["shape"] for node in model["nodes"][-4:-2]], [[8, 4], [1, 8, 4]])

    def test_functions_that_work_in_place(self):
        def forward(self, x):
            y, z, h = x * 2, x * 3, x * 4
            torch.relu_(y)
            F.elu_(z, 0.5)
            F.hardtanh_(h, -2.0, 2.0)
            torch.sigmoid_(input=h)
            torch.zero_(z)
            return (y + z + h).sum()

        model = self.export_function(forward)
        functions = ["relu", "torch.nn.functional.elu", "torch.nn.functional.hardtanh", "sigmoid"]
        self.assertEqual(calls(model), ["operator.mul"] * 2 + functions[:1] + functions[2:] + ["operator.add"] * 2 + ["sum"])
        self.assertEqual(calls(self.export_function(lambda self, x: F.elu_(x * 2, 0.5).sum())), ["operator.mul", functions[1], "sum"])

    def test_another_name_for_what_was_changed(self):
        def forward(self, x):
            y = x * 2
            flat, all_of_it = y.view(-1), y[...]
            torch.sigmoid_(flat)
            all_of_it.add_(1)
            flat.relu_()
            return y.sum() + flat.sum()

        model = self.export_function(forward)
        self.assertEqual(calls(model), ["operator.mul", "view", "sigmoid", "reshape", "add", "reshape", "relu", "reshape", "sum", "sum", "operator.add"])
        whole, flat = (node["inputs"][0] for node in model["nodes"] if node["target"] == "sum")
        self.assertEqual([calls({"nodes": [model["nodes"][n]]}) for n in (whole, flat)], [["reshape"], ["relu"]])

    def test_names_that_are_not_followed(self):
        def transposed(self, x):
            y = x * 2
            view = y.t()
            y.add_(1)
            return view.sum()

        def detached(self, x):
            y = x * 2
            y.detach().mul_(0)
            return (y * y).sum()

        def data(self, x):
            y = x * 2
            y.data.mul_(2)
            return y.sum()

        for forward in (transposed, detached, data):
            with self.subTest(forward.__name__):
                self.assert_error("changed in place", forward)

    def test_traced_values_written_into_a_tensor_made_in_forward(self):
        def added(self, x):
            y = torch.zeros(8, 4).to(x.dtype)
            y += self.linear(x)
            return y.sum()

        self.assertEqual(calls(self.export_function(added)), ["torch.nn.functional.linear", "add", "sum"])

        def known_by_name(self, x):
            y = torch.zeros(8, 4)
            y.add_(x)
            return (x * y).sum()

        model = self.export_function(known_by_name)
        self.assertEqual(calls(model), ["add", "operator.mul", "sum"])
        self.assertEqual(model["nodes"][3]["inputs"], [0, 2])

        def lost(self, x):
            y = torch.zeros(8, 4)
            y.add_(x)
            return y.sum()

        def lost_view(self, x):
            y = torch.zeros(8, 4)
            row = y[0]
            y.add_(x)
            return (x + row).sum()

        for forward in (lost, lost_view):
            with self.subTest(forward.__name__):
                self.assert_error("a traced value was written", forward)

        def by_index(self, x):
            y = torch.zeros(8, 4)
            y[1:] = x[1:]
            return y.sum()

        self.assert_error("assignment to an index", by_index)

    def test_a_slice_changed_in_place(self):
        def forward(self, x):
            y = x * 2
            y[:, 1:3].relu_()
            y[6:].zero_()
            return y.sum()

        model = self.export_function(forward)
        names = ["operator.mul", *["operator.getitem", "relu"], *["operator.getitem"] * 2, "torch.cat", "operator.getitem", "torch.cat", "sum"]
        self.assertEqual(calls(model), names)
        relu, before, after, joined = model["nodes"][3:7]
        self.assertEqual(joined["inputs"], [before["id"], relu["id"], after["id"]])
        self.assertEqual([node["out"]["shape"] for node in (before, after, joined)], [[8, 1], [8, 1], [8, 4]])

        def twice(self, x):
            y = x * 2
            last, first = y[6:], y[:1]
            last.zero_()
            first.zero_()
            return y.sum()

        self.assert_error("changed in place", twice)


if __name__ == "__main__":
    unittest.main()
