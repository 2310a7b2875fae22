package main

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestParseOptions(t *testing.T) {
	t.Parallel()
	got, err := parseOptions([]string{"--nodes", "2", "--user", "alice=dev,ops", "--user", "bob", "--ready-timeout", "5s", "-v", "--second-server"})
	if err != nil {
		t.Fatal(err)
	}
	want := options{
		Controllers: true, Nodes: 2, ReadyTimeout: 5 * time.Second, Verbose: true, SecondServer: true,
		Users: []user{{Name: "alice", Groups: []string{"dev", "ops"}}, {Name: "bob"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseOptionsErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ args, want string }{
		"unknown flag":         {"--nope", "--nope"},
		"an argument":          {"extra", `"extra"`},
		"port too big":         {"--port=65536", "--port is 65536"},
		"negative nodes":       {"--nodes=-1", "--nodes is -1"},
		"zero time":            {"--ready-timeout=0s", "--ready-timeout is 0s"},
		"gate without a value": {"--feature-gates=A=true,B", `"B"`},
		"user without a name":  {"--user==dev", `"=dev"`},
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
