package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// sameObject rejects a comparison of different objects.
func sameObject(before, after kube.Object) error {
	switch {
	case usercode.IsNil(before) || usercode.IsNil(after):
		return errors.New("compare the objects: one is nil")
	case reflect.TypeOf(before) != reflect.TypeOf(after):
		return fmt.Errorf("compare the objects: one is a %T and the other one a %T", before, after)
	case kube.KeyOf(before) != kube.KeyOf(after):
		return fmt.Errorf("compare the objects: one is %s and the other one %s", kube.KeyOf(before), kube.KeyOf(after))
	}
	return nil
}

// mergePatch returns the JSON merge patch that turns before into after, "{}" if nothing differs. Whole numbers stay
// whole, of any size. The kinds are omitted: typed objects that were read have one, and typed objects that the program
// created do not.
func mergePatch(before, after any) ([]byte, error) {
	from, err := plainFields(before)
	if err != nil {
		return nil, fmt.Errorf("encode the object before: %w", err)
	}
	to, err := plainFields(after)
	if err != nil {
		return nil, fmt.Errorf("encode the object after: %w", err)
	}
	return json.Marshal(difference.MergePatch(from, to))
}

// plainFields returns the fields of an object without its kind.
func plainFields(obj any) (map[string]any, error) {
	encoded, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := utiljson.Unmarshal(encoded, &content); err != nil {
		return nil, err
	}
	delete(content, "apiVersion")
	delete(content, "kind")
	return content, nil
}
