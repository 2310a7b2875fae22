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

// Parse reads definitions (apiextensions.k8s.io/v1) from YAML or JSON with one or several documents. It
// skips empty documents. It is strict: another kind, an unknown field and a duplicate field are errors.
//
// The errors of all documents are joined.
func Parse(documents []byte) (Definitions, error) {
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
		errs = append(errs, checkDefinitions(definitions))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("parse definitions: %w", err)
	}
	return definitions, nil
}

// ParseFS parses the files of fsys (an embed.FS, os.DirFS) that match one of the patterns, in the order of
// their names. Patterns have the syntax of fs.Glob. A pattern that matches no file is an error.
func ParseFS(fsys fs.FS, patterns ...string) (Definitions, error) {
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
		errs = append(errs, checkDefinitions(definitions)) // two files may have the same definition
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	return definitions, nil
}

// parseOne returns nil for an empty document.
func parseOne(document []byte) (*apiextensionsv1.CustomResourceDefinition, error) {
	var content any // UnmarshalStrict rejects duplicate fields
	if err := yaml.UnmarshalStrict(document, &content); err != nil {
		return nil, err
	}
	if content == nil {
		return nil, nil //nolint:nilnil // an empty document is valid
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	var header metav1.PartialObjectMetadata
	if err := json.Unmarshal(encoded, &header); err != nil {
		return nil, fmt.Errorf("not an object: %w", err)
	}
	if header.GroupVersionKind() != crdKind() {
		return nil, fmt.Errorf("found %s %q of %q, want a %s of %s", header.Kind, header.Name, header.APIVersion,
			kindName, apiextensionsv1.SchemeGroupVersion)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(encoded, definition); err != nil {
		return nil, fmt.Errorf("%s %s: %w", kindName, header.Name, err)
	}
	unknown, err := unknownFields(content, definition)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", kindName, header.Name, err)
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("%s %s: unknown fields %s: check spelling and case", kindName, header.Name,
			strings.Join(unknown, ", "))
	}
	return definition, nil
}

// unknownFields returns the paths of the fields of content that definition, which was decoded from it,
// lacks. A strict decoder is not enough: the types of schemas have their own decoders, which are lenient.
func unknownFields(content any, definition *apiextensionsv1.CustomResourceDefinition) ([]string, error) {
	encoded, err := json.Marshal(definition)
	if err != nil {
		return nil, err
	}
	var kept any
	if err := json.Unmarshal(encoded, &kept); err != nil {
		return nil, err
	}
	return missingIn(content, kept, ""), nil
}

// missingIn returns the paths that content has and kept lacks, without empty values, because encoding omits
// them.
func missingIn(content, kept any, path string) []string {
	var missing []string
	switch content := content.(type) {
	case map[string]any:
		keptMap, _ := kept.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(content)) {
			below := strings.TrimPrefix(path+"."+name, ".")
			value, found := keptMap[name]
			switch {
			case found:
				missing = append(missing, missingIn(content[name], value, below)...)
			case !isZero(content[name]):
				missing = append(missing, below)
			}
		}
	case []any:
		keptList, _ := kept.([]any)
		for i := range min(len(content), len(keptList)) {
			missing = append(missing, missingIn(content[i], keptList[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return missing
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
