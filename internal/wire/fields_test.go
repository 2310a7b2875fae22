package wire

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

func TestFields(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		`{}`, ` { "a" : 1 , "b" : [1, {"c": 2}], "":null } `, `{"a\u0062":"x\"","é":{"a":{}}}`, `{"a":1,"a":2}`,
	} {
		want := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(data), &want); err != nil {
			t.Fatal(err)
		}
		got := map[string]json.RawMessage{}
		if err := Fields([]byte(data), func(name string, value []byte) { got[name] = value }); err != nil {
			t.Errorf("%s: %v", data, err)
		}
		if !maps.EqualFunc(got, want, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
			t.Errorf("%s: got %s, want %s", data, got, want)
		}
	}
	for _, data := range []string{``, `1`, `[]`, `null`, `{"a":}`, `{"a":1`, `{"a":1}x`, `{"a" 1}`, `{"a":1,}`, `{a:1}`, "{\"a\":\"\n\"}", `{"a":01}`} {
		if err := Fields([]byte(data), func(string, []byte) {}); err == nil {
			t.Errorf("%s: no error", data)
		}
	}
}

func TestEachItem(t *testing.T) {
	t.Parallel()
	items := func(data string, stop int) (got [][]byte, err error) {
		err = EachItem([]byte(data), func(item []byte) bool { got = append(got, item); return len(got) != stop })
		return got, err
	}
	for _, data := range []string{`[]`, ` [ 1 , {"a":[2]}, null,"],[" ] `, `[[],[[]]]`} {
		var want []json.RawMessage
		if err := json.Unmarshal([]byte(data), &want); err != nil {
			t.Fatal(err)
		}
		got, err := items(data, -1)
		if err != nil || !slices.EqualFunc(got, want, func(a []byte, b json.RawMessage) bool { return string(a) == string(b) }) {
			t.Errorf("%s: got %q, %v", data, got, err)
		}
	}
	for _, data := range []string{``, `1`, `{}`, `[`, `[1`, `[1,]`, `[1]x`, `[1 2]`} {
		if _, err := items(data, -1); err == nil {
			t.Errorf("%s: no error", data)
		}
	}
	if got, err := items(`[1,2,x`, 2); err != nil || len(got) != 2 {
		t.Errorf("stopped: %q, %v", got, err)
	}
}
