package webhook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

func conversionReviewKind() schema.GroupVersionKind {
	return apiextensionsv1.SchemeGroupVersion.WithKind("ConversionReview")
}

// conversionRequest is the request of a ConversionReview.
type conversionRequest struct {
	uid     types.UID
	desired string // version
	objects []byte // the array in the review's body; nil without one
}

// readConversion reads a ConversionReview. A decoder would read each object three times.
func readConversion(body []byte) (conversionRequest, error) {
	var r conversionRequest
	var problem firstError
	head, err := readHeader(body, func(name string, value []byte) {
		switch {
		case name != "request":
		case string(value) == "null":
			r = conversionRequest{}
		default:
			problem.add(r.read(value))
		}
	})
	if err := cmp.Or(err, problem.err); err != nil {
		return r, badRequest("decode the review: %w", err)
	}
	if err := checkKind(schema.FromAPIVersionAndKind(head.APIVersion, head.Kind), conversionReviewKind()); err != nil {
		return r, err
	}
	if r.uid == "" {
		return r, badRequest("the review has no request with a uid")
	}
	return r, nil
}

func (r *conversionRequest) read(raw []byte) error {
	var problem firstError
	err := wire.Fields(raw, func(name string, value []byte) {
		switch name {
		case "uid":
			problem.add(json.Unmarshal(value, &r.uid))
		case "desiredAPIVersion":
			problem.add(json.Unmarshal(value, &r.desired))
		case "objects":
			r.objects = nil
			if value[0] == '[' {
				r.objects = value
			} else if string(value) != "null" {
				problem.add(errors.New("the objects are not a list"))
			}
		}
	})
	return cmp.Or(err, problem.err)
}

// firstError keeps the first error that is added: a client can send the same mistake any number of times.
type firstError struct{ err error }

func (f *firstError) add(err error) {
	if f.err == nil {
		f.err = err
	}
}

// response is a ConversionReview with a successful response, in JSON. Package json would parse and copy each object
// once more.
type response struct {
	text    []byte
	objects int
}

func newResponse(uid types.UID) *response {
	quoted, _ := json.Marshal(uid) // a string
	return &response{text: fmt.Appendf(nil,
		`{"kind":"ConversionReview","apiVersion":"%s","response":{"uid":%s,"convertedObjects":[`,
		apiextensionsv1.SchemeGroupVersion, quoted)}
}

func (r *response) add(object []byte) {
	if r.objects++; r.objects > 1 {
		r.text = append(r.text, ',')
	}
	r.text = append(r.text, object...)
}

func (r *response) end() encodedReview {
	return append(r.text, `],"result":{"metadata":{},"status":"Success"}}}`...)
}
