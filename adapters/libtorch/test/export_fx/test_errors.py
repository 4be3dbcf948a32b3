#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""What cannot be exported, and what is said of it."""

import unittest

from exports import ExportCase, nn, torch


class Errors(ExportCase):
    def test_data_dependent_control_flow(self):
        def forward(self, x):
            h = self.linear(x)
            if h.sum() > 0:
                h = -h
            return h.sum()

        message = self.assert_error("data-dependent", forward)
        self.assertRegex(message, r"^forward, test_errors\.py:\d+: ")

    def test_errors_say_what_and_where(self):
        self.assert_error("module 'linear', test_errors.py:", lambda self, x: self.linear(x[:, :2]).sum())
        self.assert_error("shape [8, 4]; expected the scalar loss", lambda self, x: x)
        self.assert_error("returns a tuple", lambda self, x: (x.sum(), x))
        self.assert_error("data-dependent", lambda self, x: x[x > 0].sum())
        self.assert_error("data-dependent", lambda self, x: x.sum().item())
        self.assert_error("torch.where", lambda self, x: x.__setitem__(0, 1))
        self.assert_error("do not fit forward", lambda self, x: x.sum(), {"z": torch.zeros(2)})
        self.assert_error("input 'x' is a list", lambda self, x: x.sum(), {"x": []})
        self.assert_error("not registered", lambda self, x: nn.Linear(4, 1)(x).sum())

    def test_modes_that_a_graph_does_not_have(self):
        def within(mode):
            def forward(self, x):
                with mode():
                    h = x * 2
                return self.linear(h).sum()
            return forward

        self.assert_error("torch.no_grad", within(torch.no_grad))
        self.assert_error("torch.autocast", within(lambda: torch.autocast("cpu", torch.bfloat16)))


if __name__ == "__main__":
    unittest.main()
