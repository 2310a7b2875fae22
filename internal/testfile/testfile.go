// Package testfile compares what tests generate with files of the repository.
package testfile

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Expect fails the test unless the file has the text. update is the value of the test's flag -update: if it is true,
// Expect writes the file.
func Expect(tb testing.TB, file, text string, update bool) {
	tb.Helper()
	if update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(string(content), text); diff != "" {
		tb.Errorf("%s is outdated; %s writes it with the flag -update (-file +generated):\n%s", file, tb.Name(), diff)
	}
}
