package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/result"
	"github.com/evenkeel-go/evenkeel/dev/bench/internal/section"
)

// The test binary is a server, too.
func TestMain(m *testing.M) {
	if library := os.Getenv(serveVariable); library != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestDocumentMatchesResults checks that the section of docs/reference/benchmarks.md is what the generator writes for results.json.
func TestDocumentMatchesResults(t *testing.T) {
	t.Parallel()
	results, err := result.Read[Results]("results.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want := section.Set(string(page), section.Webhooks, document(results)); string(page) != want {
		t.Errorf("docs/reference/benchmarks.md is not up to date: want\n%s", want)
	}
}

// A short run calls both servers in all ways, and checks their responses.
func TestBothServers(t *testing.T) { //nolint:paralleltest // it measures
	docs := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := os.WriteFile(docs, []byte("# Benchmarks\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-rounds", "1", "-calls", "20", "-docs", docs}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"|validate a Pod|CPU of the server per call|", "|mutate a Pod|", "|convert 1 object|", "|convert 10,000 objects|", "Medians of 1 round"} {
		if !strings.Contains(out.String(), want) || !strings.Contains(string(page), want) {
			t.Errorf("the section lacks %q:\n%s", want, out.String())
		}
	}
}
