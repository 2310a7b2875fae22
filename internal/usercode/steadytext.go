package usercode

import (
	"slices"
	"strings"
	"unicode"
)

// maxSteadyText bounds the part of an error that SteadyText reads.
const maxSteadyText = 1 << 10

// SteadyText returns the words of an error without those that contain digits, such as ports, times and request IDs. So
// the text is usually the same for each attempt that fails for one reason.
func SteadyText(err error) string {
	text := err.Error()
	if len(text) > maxSteadyText {
		text = text[:maxSteadyText]
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	words = slices.DeleteFunc(words, func(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) })
	return strings.Join(words, " ")
}
