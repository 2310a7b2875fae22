package main

import (
	"strings"
	"testing"
)

func TestKubernetesVersionOfArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                          "",
		"version":                   "",
		"--kubernetes-version=1.34": "1.34",
		"--nodes 2 --kubernetes-version v1.34 --controllers":     "v1.34",
		"up --kubernetes-version 1.34 --kubernetes-version=1.37": "1.37", // as in the binary, the last one
		"version --kubernetes-version 1.37":                      "1.37",
		"up --kubernetes-version":                                "", // an error of the binary
		"kubectl --kubernetes-version=1.34":                      "",
	} {
		if got := kubernetesVersion(strings.Fields(args)); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}
