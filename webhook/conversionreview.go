package webhook

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func conversionReviewKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: definitionGroup, Version: "v1", Kind: "ConversionReview"}
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
	head, err := readHeader(body, func(name string, value []byte) error {
		if name != "request" {
			return nil
		}
		if string(value) == "null" {
			r = conversionRequest{}
			return nil
		}
		return r.read(value)
	})
	if err != nil {
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
	return eachField(raw, func(name string, value []byte) error {
		switch name {
		case "uid":
			return json.Unmarshal(value, &r.uid)
		case "desiredAPIVersion":
			return json.Unmarshal(value, &r.desired)
		case "objects":
			r.objects = nil
			if value[0] == '[' {
				r.objects = value
			} else if string(value) != "null" {
				return errors.New("the objects are not a list")
			}
		}
		return nil
	})
}

// response is a ConversionReview with a response, in JSON. Package json would parse and copy each object
// once more.
type response struct {
	text    []byte
	objects int
}

func newResponse(uid types.UID) *response {
	quoted, _ := json.Marshal(uid) // a string
	return &response{text: fmt.Appendf(nil,
		`{"kind":"ConversionReview","apiVersion":"%s","response":{"uid":%s,"convertedObjects":[`,
		conversionReviewKind().GroupVersion(), quoted)}
}

func (r *response) add(object []byte) {
	if r.objects++; r.objects > 1 {
		r.text = append(r.text, ',')
	}
	r.text = append(r.text, object...)
}

func (r *response) end(result metav1.Status) encodedReview {
	encoded, _ := json.Marshal(result) // texts and a number
	return append(append(append(r.text, `],"result":`...), encoded...), "}}"...)
}
