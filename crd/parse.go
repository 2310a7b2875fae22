package crd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Parse reads definitions (apiextensions.k8s.io/v1) from YAML or JSON, of one or several
// documents. Empty documents are left out. It is strict, so that nothing is lost in silence:
// another kind, a field that the API does not have, and one that comes twice are errors.
//
// The errors of all documents come at once.
func Parse(documents []byte) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var (
		definitions []*apiextensionsv1.CustomResourceDefinition
		errs        []error
	)
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(documents)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("document %d: %w", number, err))
			break
		}
		definition, err := parseOne(document)
		if err != nil {
			errs = append(errs, fmt.Errorf("document %d: %w", number, err))
		} else if definition != nil {
			definitions = append(definitions, definition)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, checkAll(definitions))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("parse definitions: %w", err)
	}
	return definitions, nil
}

// ParseFS parses the files that match patterns (as fs.Glob has them), in the order of their
// names: what go:embed has put into the program, or os.DirFS. A pattern that matches nothing is
// an error.
func ParseFS(fsys fs.FS, patterns ...string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var (
		files []string
		errs  []error
	)
	for _, pattern := range patterns {
		matches, err := fs.Glob(fsys, pattern)
		if err == nil && len(matches) == 0 {
			err = errors.New("no file matches")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pattern %q: %w", pattern, err))
		}
		files = append(files, matches...)
	}
	slices.Sort(files)
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, file := range slices.Compact(files) {
		content, err := fs.ReadFile(fsys, file)
		if err == nil {
			var parsed []*apiextensionsv1.CustomResourceDefinition
			parsed, err = Parse(content)
			definitions = append(definitions, parsed...)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("file %s: %w", file, err))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, checkAll(definitions)) // one may be in two files
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	return definitions, nil
}

// parseOne returns nil for an empty document.
func parseOne(document []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	var content any // the strict reader refuses fields that come twice
	if err := yaml.UnmarshalStrict(document, &content); err != nil {
		return nil, err
	}
	if content == nil {
		return nil, nil //nolint:nilnil // there is nothing, and that is right
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	var head metav1.PartialObjectMetadata
	if err := json.Unmarshal(encoded, &head); err != nil {
		return nil, fmt.Errorf("it is no object: %w", err)
	}
	if head.GroupVersionKind() != crdKind() {
		return nil, fmt.Errorf("it is %s %q of %q: want a %s of %s", head.Kind, head.Name, head.APIVersion, kindName, apiextensionsv1.SchemeGroupVersion)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(encoded, definition); err != nil {
		return nil, fmt.Errorf("%s %s: %w", kindName, head.Name, err)
	}
	unknown, err := lostFields(content, definition)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", kindName, head.Name, err)
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("%s %s: the API has no such fields: %s: mind spelling and case", kindName, head.Name, strings.Join(unknown, ", "))
	}
	return definition, nil
}

// lostFields names the fields of content that definition, which was read from it, does not have.
// A strict decoder would not do: parts of schemas have decoders of their own, which are not.
func lostFields(content any, definition *apiextensionsv1.CustomResourceDefinition) ([]string, error) {
	encoded, err := json.Marshal(definition)
	if err != nil {
		return nil, err
	}
	var kept any
	if err := json.Unmarshal(encoded, &kept); err != nil {
		return nil, err
	}
	return lostIn(content, kept, ""), nil
}

func lostIn(content, kept any, path string) []string {
	var lost []string
	switch content := content.(type) {
	case map[string]any:
		keptMap, _ := kept.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(content)) {
			below := strings.TrimPrefix(path+"."+name, ".")
			value, found := keptMap[name]
			switch {
			case found:
				lost = append(lost, lostIn(content[name], value, below)...)
			case !isZero(content[name]): // zeroes are left out rightly
				lost = append(lost, below)
			}
		}
	case []any:
		keptList, _ := kept.([]any)
		for i := range min(len(content), len(keptList)) {
			lost = append(lost, lostIn(content[i], keptList[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return lost
}

func isZero(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return value == nil || reflect.ValueOf(value).IsZero()
}
