package main

import (
	"bytes"
	"os"
	"testing"
)

func TestGeneratedFileIsCurrent(t *testing.T) {
	t.Chdir("..") // as go generate does
	content, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("schemas.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content, file) {
		t.Error("run go generate ./internal/apiserver/openapi")
	}
}
