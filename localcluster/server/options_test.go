package main

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestParseOptions(t *testing.T) {
	t.Parallel()
	got, err := parseOptions([]string{"--nodes", "2", "--user", "alice=dev,ops", "--user", "bob", "--ready-timeout", "5s", "-v", "--second-server", "--apiserver-arg", "--audit-log-path=b,c", "--apiserver-arg=--allow-privileged", "--kubernetes-version=" + kubernetesVersion()})
	if err != nil {
		t.Fatal(err)
	}
	want := options{
		Controllers: true, Nodes: 2, ReadyTimeout: 5 * time.Second, Verbose: true, SecondServer: true,
		APIServerArgs: []string{"--audit-log-path=b,c", "--allow-privileged"}, KubernetesVersion: kubernetesVersion(),
		Users: []user{{Name: "alice", Groups: []string{"dev", "ops"}}, {Name: "bob"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseOptionsErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ args, want string }{
		"unknown flag":          {"--nope", "--nope"},
		"an argument":           {"extra", `"extra"`},
		"port too big":          {"--port=65536", "--port is 65536"},
		"negative nodes":        {"--nodes=-1", "--nodes is -1"},
		"zero time":             {"--ready-timeout=0s", "--ready-timeout is 0s"},
		"gate without a value":  {"--feature-gates=A=true,B", `"B"`},
		"no flag":               {"--apiserver-arg=a=b", `"a=b"`},
		"help":                  {"--apiserver-arg=--help", "must be a flag"},
		"unknown server flag":   {"--apiserver-arg=--no-such-flag=1", "unknown flag: --no-such-flag"},
		"server flag, no value": {"--apiserver-arg=--audit-log-path", "needs an argument"},
		"invalid value":         {"--apiserver-arg=--allow-privileged=maybe", `invalid argument "maybe"`},
		"the cluster's port":    {"--apiserver-arg=--secure-port=1", "--port sets its port"},
		"the cluster's etcd":    {"--apiserver-arg=--etcd-servers=http://x", "its own etcd"},
		"the cluster's keys":    {"--apiserver-arg=--client-ca-file=/x", "own certificates and keys"},
		"the cluster's range":   {"--apiserver-arg=--service-cluster-ip-range=10.0.0.0/8", "own range"},
		"other version":         {"--kubernetes-version=1.12", "--kubernetes-version is 1.12, but this binary has Kubernetes " + kubernetesVersion()},
		"user without a name":   {"--user==dev", `"=dev"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseOptions([]string{test.args})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %s", err, test.want)
			}
		})
	}
	if _, err := parseOptions([]string{"--help"}); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("--help: got %v", err)
	}
}

func TestHasVersion(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]bool{
		"": true, "1.36": true, "v1.36": true, "1.36.3": true, "v1.36.3": true, "1.3": false, "1.36.30": false, "1.36.2": false, "1": true, "1.37": false,
	} {
		if got := hasVersion("v1.36.3", asked); got != want {
			t.Errorf("%q: got %v", asked, got)
		}
	}
	if hasVersion("v1.36.30", "1.36.3") {
		t.Error("1.36.30 is taken for 1.36.3")
	}
}

// A flag of the user replaces the cluster's own: lists would contain both values.
func TestUserFlagsReplaceDefaults(t *testing.T) {
	t.Parallel()
	own := apiServerFlags(settings{})
	args := []string{"--authorization-mode=RBAC,Webhook", "--audit-log-path=-", "--allow-privileged"}
	got := apiServerFlags(settings{APIServerArgs: args})
	want := slices.DeleteFunc(slices.Clone(own), func(flag string) bool {
		return flag == "--authorization-mode=Node,RBAC" || flag == "--allow-privileged=true"
	})
	if len(want) != len(own)-2 {
		t.Fatalf("the own flags are %q", own)
	}
	if want = append(want, args...); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
