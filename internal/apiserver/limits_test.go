package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// An object whose managed fields do not fit beside it is stored without them.
func TestObjectNearTheSizeLimitHasNoManagedFields(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const path = "/apis/example.com/v1/namespaces/shop/widgets"
	body := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{`
	for i := range 3100 {
		body += fmt.Sprintf(`"f%05d%s":1,`, i, strings.Repeat("f", 250))
	}
	body = strings.TrimSuffix(body, ",") + "}}"
	if code, text := send(t, s, "PATCH", path+"/a?fieldManager=m", body, "Content-Type", "application/apply-patch+yaml"); code != http.StatusInternalServerError {
		t.Errorf("apply: %d %.200s", code, text)
	}
	for i, text := range []string{
		mustSend(t, s, "POST", path, body),
		mustSend(t, s, "PATCH", path+"/a", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/merge-patch+json"),
	} {
		if strings.Contains(text, "managedFields") {
			t.Errorf("response %d has managed fields", i)
		}
	}
}
