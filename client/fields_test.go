package client

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func TestFieldsMatch(t *testing.T) {
	t.Parallel()
	const (
		ports  = `{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}},"k:{\"port\":80,\"protocol\":\"UDP\"}":{".":{},"f:port":{},"f:protocol":{}}}}}`
		tcp    = `{"port":80}`
		udp    = `{"port":80,"protocol":"UDP"}`
		custom = `{"apiVersion":"example.com/v1",`
		tcpUDP = `{"spec":{"ports":[{"port":80,"protocol":"TCP"},{"port":80,"protocol":"UDP"}]}}`
	)
	for name, test := range map[string]struct {
		fields, configuration, content string
		same, match                    bool // same: the configuration is known to be the last one
	}{
		"as configured":                        {`{"f:a":{"f:b":{}}}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`, false, true},
		"another value":                        {`{"f:a":{"f:b":{}}}`, `{"a":{"b":1}}`, `{"a":{"b":2}}`, false, false},
		"another value of the same apply":      {`{"f:a":{"f:b":{}}}`, `{"a":{"b":1}}`, `{"a":{"b":2}}`, true, true},
		"a field that was taken":               {`{"f:a":{"f:b":{}}}`, `{"a":{"b":1,"c":1}}`, `{"a":{"b":1,"c":1}}`, true, false},
		"a field that is not applied any more": {`{"f:a":{"f:b":{},"f:c":{}}}`, `{"a":{"b":1}}`, `{"a":{"b":1,"c":1}}`, true, false},
		"a map that is not applied any more":   {`{"f:a":{"f:b":{}},"f:c":{"f:d":{}}}`, `{"a":{"b":1}}`, `{"a":{"b":1},"c":{"d":1}}`, true, false},
		"a field of another client":            {`{"f:a":{"f:b":{}}}`, `{"a":{"b":1}}`, `{"a":{"b":1,"c":1}}`, false, true},
		"nothing is owned":                     {`{}`, `{"a":1}`, `{"a":1}`, true, false},
		"identity is not owned":                {`{"f:metadata":{"f:labels":{"f:x":{}}}}`, `{"apiVersion":"v1","kind":"K","metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"1","labels":{"x":"y"}}}`, `{"metadata":{"labels":{"x":"y"}}}`, false, true},
		"a map that is owned as a whole":       {`{"f:a":{}}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`, false, true},
		"one entry less in such a map":         {`{"f:a":{}}`, `{"a":{"b":1}}`, `{"a":{"b":1,"c":1}}`, false, false},
		"an empty map":                         {`{"f:a":{}}`, `{"a":{}}`, `{"a":{}}`, false, true},
		"an empty map that had fields":         {`{"f:a":{"f:b":{}}}`, `{"a":{}}`, `{"a":{"b":1}}`, true, false},
		"a map that was empty":                 {`{"f:a":{".":{}}}`, `{"a":{"b":1}}`, `{"a":{}}`, false, false},
		"a value that was a map":               {`{"f:a":{"f:b":{}}}`, `{"a":1}`, `{"a":1}`, true, false},
		"a list that is owned as a whole":      {`{"f:a":{}}`, `{"a":[1,2]}`, `{"a":[1,2]}`, false, true},
		"another such list":                    {`{"f:a":{}}`, `{"a":[1,2]}`, `{"a":[2,1]}`, false, false},
		"an empty list":                        {`{}`, `{"a":[]}`, `{}`, true, true},
		"an empty list that has elements":      {`{}`, `{"a":[]}`, `{"a":[1]}`, true, false},
		"a set":                                {`{"f:a":{"v:\"x\"":{},"v:1":{}}}`, `{"a":["x",1]}`, `{"a":["x",1,"y"]}`, false, true},
		"a set in another order":               {`{"f:a":{"v:\"x\"":{},"v:1":{}}}`, `{"a":["x",1]}`, `{"a":[1,"x"]}`, true, false},
		"a map in a set":                       {`{"f:a":{"v:{\"n\":\"x\"}":{}}}`, `{"a":[{"n":"x"}]}`, `{"a":[{"n":"x"}]}`, false, true},
		"a map in a set with a field more":     {`{"f:a":{"v:{\"n\":\"x\"}":{}}}`, `{"a":[{"n":"x","w":1}]}`, `{"a":[{"n":"x"}]}`, true, false},
		"null in another set":                  {`{"f:a":{".":{},"v:1":{}}}`, `{"a":[null]}`, `{"a":[1]}`, true, false},
		"an element less":                      {`{"f:a":{"v:\"x\"":{},"v:1":{}}}`, `{"a":["x"]}`, `{"a":["x",1]}`, true, false},
		"an element more":                      {`{"f:a":{"v:\"x\"":{}}}`, `{"a":["x",1]}`, `{"a":["x",1]}`, true, false},
		"an element twice":                     {`{"f:a":{"v:\"x\"":{},"v:1":{}}}`, `{"a":["x","x"]}`, `{"a":["x",1]}`, true, false},
		"elements with a key by default":       {ports, `{"spec":{"ports":[` + tcp + `,` + udp + `]}}`, tcpUDP, false, true},
		"elements in another order":            {ports, `{"spec":{"ports":[` + udp + `,` + tcp + `]}}`, tcpUDP, true, false},
		"between elements of another client":   {ports, `{"spec":{"ports":[` + tcp + `,` + udp + `]}}`, `{"spec":{"ports":[{"port":1},{"port":80,"protocol":"TCP"},{"port":2},{"port":80,"protocol":"UDP"}]}}`, true, true},
		"an element that is gone":              {ports, `{"spec":{"ports":[` + tcp + `,` + udp + `]}}`, `{"spec":{"ports":[{"port":80,"protocol":"TCP"}]}}`, true, false},
		"an element with a field more":         {ports, `{"spec":{"ports":[{"port":80,"name":"x"},` + udp + `]}}`, tcpUDP, true, false},
		"an element owned as a whole":          {`{"f:o":{"k:{\"uid\":\"u\"}":{}}}`, `{"o":[{"uid":"u","name":"n"}]}`, `{"o":[{"uid":"u","name":"n"}]}`, false, true},
		"its fields are others":                {`{"f:o":{"k:{\"uid\":\"u\"}":{}}}`, `{"o":[{"uid":"u","name":"n"}]}`, `{"o":[{"uid":"u","name":"m"}]}`, false, false},
		"a list for a map":                     {`{"f:a":{"f:b":{}}}`, `{"a":[1]}`, `{"a":[1]}`, true, false},
		"an index":                             {`{"f:a":{"i:0":{}}}`, `{"a":[1]}`, `{"a":[1]}`, true, false},
		"null":                                 {`{"f:a":{}}`, `{"a":null}`, `{}`, false, true},
		"a list that a webhook has changed":    {`{"f:a":{}}`, `{"a":[1]}`, `{"a":[2]}`, true, true},
		"a custom kind's list":                 {`{"f:a":{}}`, custom + `"a":[{"n":"x","w":1,"e":{},"z":null}]}`, `{"a":[{"n":"x","w":1,"d":2}]}`, true, true},
		"its element was changed":              {`{"f:a":{}}`, custom + `"a":[{"n":"x","w":1}]}`, `{"a":[{"n":"x","w":9}]}`, true, false},
		"its element was removed":              {`{"f:a":{}}`, custom + `"a":[{"n":"x"},{"n":"y"}]}`, `{"a":[{"n":"y"}]}`, true, false},
		"an element was added to it":           {`{"f:a":{}}`, custom + `"a":[{"n":"x"},{"n":"y"}]}`, `{"a":[{"n":"x"},{"n":"z"},{"n":"y"}]}`, true, true},
		"its elements were reordered":          {`{"f:a":{}}`, custom + `"a":[{"n":"x"},{"n":"y"}]}`, `{"a":[{"n":"y"},{"n":"x"}]}`, true, false},
		"a custom kind's map was changed":      {`{"f:a":{}}`, custom + `"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":2}}}`, true, false},
		"an entry was added to it":             {`{"f:a":{}}`, custom + `"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":1},"d":1}}`, true, true},
		"a custom kind's value was changed":    {`{"f:a":{"f:b":{}}}`, custom + `"a":{"b":1}}`, `{"a":{"b":2}}`, true, false},
		"a custom kind's default":              {`{"f:a":{"f:b":{}}}`, custom + `"a":{"b":null}}`, `{"a":{"b":2}}`, true, true},
	} {
		configuration := contentFromJSON(t, test.configuration)
		entry := &metav1.ManagedFieldsEntry{FieldsV1: metav1.NewFieldsV1(test.fields)}
		if version, ok := configuration["apiVersion"].(string); ok {
			entry.APIVersion = version
		} else {
			configuration["apiVersion"], entry.APIVersion = "v1", "v1"
		}
		content := func() (map[string]any, error) { return contentFromJSON(t, test.content), nil }
		match, err := fieldsMatch(entry, configuration, test.same, content)
		if err != nil || match != test.match {
			t.Errorf("%s: match is %t (%v), want %t", name, match, err, test.match)
		}
		entry.APIVersion = "v2"
		if match, err := fieldsMatch(entry, configuration, test.same, content); err != nil || match {
			t.Errorf("%s: the fields of another version match (%v)", name, err)
		}
	}
	entry := &metav1.ManagedFieldsEntry{APIVersion: "v1", FieldsV1: metav1.NewFieldsV1(`{`)}
	if _, err := fieldsMatch(entry, map[string]any{"apiVersion": "v1"}, true, nil); err == nil {
		t.Error("fields that cannot be read are taken")
	}
}

// contentFromJSON decodes numbers into the same types as in objects.
func contentFromJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	content := map[string]any{}
	if err := utiljson.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	return content
}

// TestMalformedManagedFieldsDoNotPanic compares random managedFields with random contents: an API server stores the
// managedFields that a client has sent, and an aggregated API server may return anything.
func TestMalformedManagedFieldsDoNotPanic(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 5))
	names := []string{
		"f:a", "f:name", "f:port", "f:protocol", "f:metadata", ".", `k:{"name":"a"}`, `k:{"port":1,"protocol":"TCP"}`,
		`k:{}`, "k:[", "k:null", "k:1", `v:"a"`, "v:1", `v:{"name":"a"}`, "v:null", "i:0",
	}
	var content, fields func(depth int) any
	content = func(depth int) any {
		switch n := random.IntN(9); {
		case n < 3 && depth > 0:
			object := map[string]any{}
			for range random.IntN(4) {
				object[[]string{"a", "name", "port", "protocol", "metadata"}[random.IntN(5)]] = content(depth - 1)
			}
			return object
		case n < 5 && depth > 0:
			return []any{content(depth - 1), content(depth - 1)}[:random.IntN(3)]
		}
		return []any{nil, int64(1), "a", "TCP"}[random.IntN(4)]
	}
	fields = func(depth int) any {
		if depth == 0 || random.IntN(8) == 0 {
			return []any{map[string]any{}, nil, "x", []any{}}[random.IntN(4)]
		}
		object := map[string]any{}
		for range random.IntN(5) {
			object[names[random.IntN(len(names))]] = fields(depth - 1)
		}
		return object
	}
	(&stripper{differ: differ{hides: func(string) bool { return false }}}).strip(nil, contentFromJSON(t, `{"f:a":{"k:null":{}}}`), []map[string]any{contentFromJSON(t, `{"f:a":{}}`)}, contentFromJSON(t, `{"a":[null]}`))
	for range 20_000 {
		configuration, isObject := content(5).(map[string]any)
		former, hasFields := fields(5).(map[string]any)
		if !isObject || !hasFields {
			continue
		}
		encoded, err := json.Marshal(former)
		if err != nil {
			t.Fatal(err)
		}
		configuration["apiVersion"] = "v1"
		entry := &metav1.ManagedFieldsEntry{APIVersion: "v1", FieldsV1: metav1.NewFieldsV1(string(encoded))}
		live, _ := content(5).(map[string]any)
		if _, err := fieldsMatch(entry, configuration, random.IntN(2) == 0, func() (map[string]any, error) { return live, nil }); err != nil {
			t.Fatal(err)
		}
		rest, _ := fields(5).(map[string]any)
		whole, err := json.Marshal(configuration)
		if err != nil {
			t.Fatal(err)
		}
		d := &stripper{differ{hides: func(string) bool { return false }}, contentFromJSON(t, string(whole))}
		d.strip(nil, former, []map[string]any{rest}, configuration)
	}
}
