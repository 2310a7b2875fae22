package client

import (
	"encoding/json"
	"strings"
	"testing"
)

// A Secret that was written by kubectl apply contains the data twice, once in an annotation. LeftFields must show
// neither, whether or not other managers own neighbouring fields.
func TestLeftFieldsOfSecretHideLastAppliedConfiguration(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]string{
		"nothing":     `{}`,
		"labels":      `{"f:metadata":{"f:labels":{"f:a":{}}}}`,
		"annotations": `{"f:metadata":{"f:annotations":{"f:a":{}}}}`,
		"data":        `{"f:data":{"f:b":{}}}`,
	} {
		const annotation = "kubectl.kubernetes.io/last-applied-configuration"
		fields := contentFromJSON(t, `{"f:metadata":{"f:annotations":{".":{},"f:`+annotation+`":{}}},"f:data":{".":{},"f:a":{}}}`)
		content := contentFromJSON(t, `{"metadata":{"name":"keys","annotations":{"`+annotation+`":"{\"data\":{\"a\":\"c2VzYW1l\"}}"}},"data":{"a":"c2VzYW1l"}}`)
		d := differ{secret: true}
		stripped := d.strip("", fields, []map[string]any{contentFromJSON(t, others)}, content)
		if metadata, _ := stripped.(map[string]any)["metadata"].(map[string]any); metadata["name"] != "keys" {
			t.Errorf("another manager has %s: the rest of the metadata is gone: %v", name, stripped)
		}
		encoded, err := json.Marshal(d.changes)
		if err != nil || len(d.changes) != 2 || strings.Contains(string(encoded), "c2VzYW1l") {
			t.Errorf("another manager has %s: %s, %v", name, encoded, err)
		}
	}
}
