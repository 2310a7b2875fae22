package webhook

import (
	"cmp"
	"encoding/json"
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
	desired string   // version
	objects [][]byte // parts of the review's body
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
			if string(value) != "null" {
				items, err := wire.Items(value)
				problem.add(err)
				r.objects = items
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

// encodeConverted encodes a ConversionReview with a successful response. Package json would parse and copy each object
// once more.
func encodeConverted(uid types.UID, objects [][]byte) encodedReview {
	quoted, _ := json.Marshal(uid) // a string
	size := 200
	for _, object := range objects {
		size += len(object) + 1
	}
	text := fmt.Appendf(make([]byte, 0, size),
		`{"kind":"ConversionReview","apiVersion":"%s","response":{"uid":%s,"convertedObjects":[`,
		apiextensionsv1.SchemeGroupVersion, quoted)
	for i, object := range objects {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, object...)
	}
	return append(text, `],"result":{"metadata":{},"status":"Success"}}}`...)
}
