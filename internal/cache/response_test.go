package cache

import "testing"

// TestKindOfResponse checks that the kind of a response is found at every position in it.
func TestKindOfResponse(t *testing.T) {
	t.Parallel()
	for encoded, want := range map[string]string{
		`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{}}`:                       "apps/v1, Kind=Deployment",
		`{"metadata":{"kind":"No"},"apiVersion":"v1","spec":[1,{"a":2}],"kind":"Service"}`: "/v1, Kind=Service",
		`{"apiVersion":"v1"}`:            "/v1, Kind=",
		`{}`:                             "/, Kind=",
		`{"kind":7,"apiVersion":"v1"}`:   "/, Kind=",
		`{"metadata":{`:                  "/, Kind=",
		`[]`:                             "/, Kind=",
		``:                               "/, Kind=",
		`{"kind":"A","apiVersion":"b"}]`: "/b, Kind=A",
	} {
		if got := kindOf([]byte(encoded)).String(); got != want {
			t.Errorf("%s is of kind %q, want %q", encoded, got, want)
		}
	}
}
