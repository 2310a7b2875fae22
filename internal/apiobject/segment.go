package apiobject

import (
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// CheckSegments returns an error for the first text, unless empty, that cannot be an element of a request's path: "..",
// and what has a slash, a percent sign or a control character. The request would be for another object, or would end a
// line of a log.
func CheckSegments(texts ...string) error {
	for _, text := range texts {
		mistakes := content.IsPathSegmentName(text)
		if strings.ContainsFunc(text, unicode.IsControl) {
			mistakes = append(mistakes, "may not contain control characters")
		}
		if len(mistakes) > 0 {
			return fmt.Errorf("%q %s", text, strings.Join(mistakes, ", "))
		}
	}
	return nil
}

// CheckPath returns an error for the path of a request if one of its elements is "." or "..", or has a control
// character. A name with a slash or a percent sign cannot be found in it.
func CheckPath(requested string) error {
	for segment := range strings.SplitSeq(requested, "/") {
		if segment == "." || segment == ".." || strings.ContainsFunc(segment, unicode.IsControl) {
			return fmt.Errorf("the path of the request: %w", CheckSegments(segment))
		}
	}
	return nil
}
