package kube_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

func TestHideFieldsRejectsUnknownFields(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://api.invalid"}, appsv1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	deployment, account := schema.GroupKind{Group: "apps", Kind: "Deployment"}, schema.GroupKind{Group: "example.com", Kind: "Account"}
	err = cluster.HideFields(deployment, "spec.template.spec.containers.env.value", "spec.tempalte", "spec.template.spec.containers.args.x", "spec..a")
	for _, want := range []string{
		`hide field "spec.tempalte" of Deployment.apps: "spec.tempalte": v1.DeploymentSpec has no such field: is it "template"?`,
		`"spec.template.spec.containers.args.x": string has no fields`, `"spec..a"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %s: %v", want, err)
		}
	}
	if err := cluster.HideFields(account, "spec.password"); err != nil {
		t.Errorf("a kind without Go type: %v", err)
	}
	for path, want := range map[string]bool{
		"spec.template.spec.containers[web].env[KEY].value": true,
		"spec.template.spec.containers[web].env[KEY].name":  false,
		"spec.replicas": false,
	} {
		if got := cluster.Hides(deployment, path); got != want {
			t.Errorf("Hides(%s) = %t, want %t", path, got, want)
		}
	}
	if !cluster.Hides(schema.GroupKind{Kind: "Secret"}, "data") || !cluster.Hides(account, "spec") || cluster.Hides(account, "status") {
		t.Error("the fields of Secrets or Accounts are wrong")
	}
}

// The API server's error about an invalid object quotes the values of its fields.
func TestHiddenValuesInErrors(t *testing.T) {
	t.Parallel()
	account := schema.GroupKind{Group: "example.com", Kind: "Account"}
	invalid := apierrors.NewInvalid(account, "a", field.ErrorList{
		field.Invalid(field.NewPath("spec", "password"), "hunter2", "should be longer"),
		field.Invalid(field.NewPath("spec", "size"), 7, "should be even"),
		field.Invalid(nil, map[string]any{"spec": map[string]any{"password": "hunter2"}}, "no"),
		field.Required(field.NewPath("spec", "owner"), ""),
	}).Status()
	invalid.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	var encoded bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(&invalid, &encoded); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(invalid)
	if err != nil {
		t.Fatal(err)
	}
	for contentType, text := range map[string][]byte{"application/json": asJSON, runtime.ContentTypeProtobuf: encoded.Bytes()} {
		code, content := http.StatusUnprocessableEntity, text
		config := &rest.Config{Host: "http://api.invalid", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: code, Request: r, Header: http.Header{"Content-Type": {contentType}},
				Body: io.NopCloser(bytes.NewReader(content)), ContentLength: int64(len(content)),
			}, nil
		})}
		cluster, err := kube.Connect(config, corev1.AddToScheme)
		if err != nil {
			t.Fatal(err)
		}
		client, err := cluster.RESTClient(schema.GroupVersion{Version: "v1"})
		if err != nil {
			t.Fatal(err)
		}
		ask := func() error { return client.Put().AbsPath("/apis/example.com/v1/accounts/a").Do(t.Context()).Error() }
		if err := ask(); err == nil || err.Error() != invalid.Message {
			t.Errorf("%s: without hidden fields the error is %v, want %s", contentType, err, invalid.Message)
		}
		if err := cluster.HideFields(account, "spec.password"); err != nil {
			t.Fatal(err)
		}
		err = ask()
		want := `Account.example.com "a" is invalid: [spec.password: (hidden), spec.size: Invalid value: 7: should be even, <nil>: (hidden), spec.owner: Required value]`
		var status *apierrors.StatusError
		if !errors.As(err, &status) || !apierrors.IsInvalid(err) || err.Error() != want {
			t.Errorf("%s: the error is\n%v, want\n%s", contentType, err, want)
		} else if causes := status.ErrStatus.Details.Causes; len(causes) != 4 || causes[0].Message != "(hidden)" || causes[1].Message == "(hidden)" {
			t.Errorf("%s: the causes are %v", contentType, causes)
		}
		content = []byte("not a status")
		if err := ask(); err == nil || !strings.Contains(err.Error(), "the server rejected our request due to an error in our request") {
			t.Errorf("%s: another response: %v", contentType, err)
		}
		code, content = http.StatusOK, []byte(`{"kind":"Account","apiVersion":"example.com/v1","spec":{"password":"hunter2"}}`)
		contentType = "application/json"
		if got, err := client.Get().AbsPath("/apis/example.com/v1/accounts/a").Do(t.Context()).Raw(); err != nil || !bytes.Equal(got, content) {
			t.Errorf("an object is %s, %v", got, err)
		}
	}
}

// The API server quotes the whole object after a patch whose result it cannot read, and server-side apply quotes values of
// a wrong type. The values of Secrets are hidden also without HideFields.
func TestHiddenValuesInErrorsOfPatches(t *testing.T) {
	t.Parallel()
	const (
		patched = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":" \"\" is invalid: patch: Invalid value: \"{hunter2}\": illegal","reason":"Invalid",` +
			`"details":{"causes":[{"message":"Invalid value: \"{hunter2}\": illegal","field":"patch"}]},"code":422}`
		applied = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"failed to create typed patch object: .spec.pin: expected string, got &value{hunter2}\nhunter2","code":500}`
		secrets = "/api/v1/namespaces/a/secrets/b"
		account = "/apis/example.com/v1/namespaces/a/accounts/b"
		other   = "/apis/other.example.com/v1/namespaces/a/accounts/b"
	)
	for _, test := range []struct {
		path, response string
		code           int
		want           string
	}{
		{secrets, patched, 422, ` "" is invalid: patch: (hidden)`},
		{secrets, applied, 500, "failed to create typed patch object: .spec.pin: expected string, got (hidden)"},
		{account, patched, 422, ` "" is invalid: patch: (hidden)`},
		{account, applied, 500, "failed to create typed patch object: .spec.pin: expected string, got (hidden)"},
		{other, patched, 422, ` "" is invalid: patch: Invalid value: "{hunter2}": illegal`},
		{other, applied, 500, "failed to create typed patch object: .spec.pin: expected string, got &value{hunter2}\nhunter2"},
	} {
		config := &rest.Config{Host: "http://api.invalid", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: test.code, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(test.response)), ContentLength: int64(len(test.response)),
			}, nil
		})}
		cluster, err := kube.Connect(config)
		if err != nil {
			t.Fatal(err)
		}
		if test.path != secrets {
			if err := cluster.HideFields(schema.GroupKind{Group: "example.com", Kind: "Account"}, "spec.pin"); err != nil {
				t.Fatal(err)
			}
		}
		client, err := cluster.RESTClient(schema.GroupVersion{Version: "v1"})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Verb(http.MethodPatch).AbsPath(test.path).Do(t.Context()).Error(); err == nil || err.Error() != test.want {
			t.Errorf("%s: the error is %v, want %s", test.path, err, test.want)
		}
	}
}

// Keys below a hidden field are values: in causes of invalid objects, conflicts of apply, errors of apply without causes,
// and warnings.
func TestHiddenKeysInErrorsAndWarnings(t *testing.T) {
	t.Parallel()
	const begin = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":`
	for name, test := range map[string]struct {
		code     int
		response string
		want     string
	}{
		"key of a map": {
			422, begin + `"Account.example.com \"a\" is invalid: spec.tokens.hunter2: Invalid value: 7: no","reason":"Invalid","details":` +
				`{"group":"example.com","kind":"Account","causes":[{"reason":"FieldValueInvalid","message":"Invalid value: 7: no","field":"spec.tokens.hunter2"}]},"code":422}`,
			`Account.example.com "a" is invalid: spec.tokens: (hidden)`,
		},
		"conflict of apply": {
			409, begin + `"Apply failed with 1 conflict: conflict with \"other\": .spec.users[name=\"hunter2\"].role","reason":"Conflict","details":` +
				`{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"other\"","field":".spec.users[name=\"hunter2\"].role"}]},"code":409}`,
			`Apply failed with 1 conflict: conflict with "other": .spec.users[(hidden)].role`,
		},
		"duplicate": {
			500, begin + `"failed to create typed patch object: .spec.users: duplicate entries for key [name=\"hunter2\"]","code":500}`,
			`failed to create typed patch object: .spec.users: duplicate entries for key (hidden)`,
		},
		"unknown field": {
			400, begin + `"strict decoding error: unknown field \"spec.tokens.hunter2.part\"","code":400}`,
			`strict decoding error: unknown field "spec.tokens"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := &rest.Config{Host: "http://api.invalid", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: test.code, Request: r, ContentLength: int64(len(test.response)), Body: io.NopCloser(strings.NewReader(test.response)),
					Header: http.Header{"Content-Type": {"application/json"}, "Warning": {`299 - "unknown field \"spec.tokens.hunter2\""`}},
				}, nil
			})}
			cluster, err := kube.Connect(config)
			if err != nil {
				t.Fatal(err)
			}
			if err := cluster.HideFields(schema.GroupKind{Group: "example.com", Kind: "Account"}, "spec.tokens", "spec.users.name"); err != nil {
				t.Fatal(err)
			}
			client, err := cluster.RESTClient(schema.GroupVersion{Version: "v1"})
			if err != nil {
				t.Fatal(err)
			}
			result := client.Verb(http.MethodPatch).AbsPath("/apis/example.com/v1/namespaces/n/accounts/a").Do(t.Context())
			err = result.Error()
			var status apierrors.APIStatus
			if err == nil || err.Error() != test.want || !errors.As(err, &status) || strings.Contains(fmt.Sprint(status.Status()), "hunter2") {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
			if warnings := result.Warnings(); len(warnings) != 1 || warnings[0].Text != `unknown field "spec.tokens"` {
				t.Errorf("warnings %v", warnings)
			}
		})
	}
}
