package usercode

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

const (
	// MaxText is the longest error text that is kept or logged, in bytes.
	MaxText = 2048
	// maxDepth is how many errors may wrap each other one inside the other.
	maxDepth = 1000
	// maxErrors is how many errors one error may consist of.
	maxErrors = 100_000
)

// Error returns err in a form whose methods return, and whose text has at most MaxText bytes.
// Most errors are returned as they are. When only the text of err is too long, or its Error method
// panics, the result wraps err. An err that wraps itself, or whose Unwrap method panics, is
// replaced by an error that describes it and wraps nothing.
//
// Error is nil for nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	if !Sound(err) {
		return &unsoundError{describe(err)}
	}
	text, whole := read(err)
	if whole {
		return err
	}
	return &shortError{text, err}
}

// Text returns the text of err in at most MaxText bytes. It describes an err that has no readable
// text. Text is "" for nil.
func Text(err error) string {
	switch {
	case err == nil:
		return ""
	case !Sound(err):
		return describe(err)
	}
	text, _ := read(err)
	return text
}

// Sound reports whether the errors that err wraps can be walked: none wraps itself, and no Unwrap
// method panics. errors.Is and errors.As do not return for an error that is not sound.
func Sound(err error) (sound bool) {
	defer func() {
		if recover() != nil {
			sound = false
		}
	}()
	left := maxErrors
	return walk(err, maxDepth, &left)
}

// walk reports whether err wraps at most depth errors one inside the other, and at most left in all.
func walk(err error, depth int, left *int) bool {
	for ; err != nil; depth-- {
		if *left--; depth == 0 || *left < 0 {
			return false
		}
		switch e := err.(type) { //nolint:errorlint // this walks the tree itself
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				if !walk(inner, depth-1, left) {
					return false
				}
			}
			return true
		default:
			return true
		}
	}
	return true
}

// read returns the text of a sound error, shortened; whole is true when it is the text as it is.
func read(err error) (text string, whole bool) {
	defer func() {
		if value := recover(); value != nil {
			text, whole = describePanic(err, value), false
		}
	}()
	full := err.Error()
	text = Shorten(full)
	return text, len(text) == len(full)
}

// describePanic is the text of an error whose Error method panicked.
func describePanic(err error, value any) string {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Sprintf("a nil %T was returned as an error: return nil instead", err)
	}
	return Shorten(fmt.Sprintf("an error of type %T, whose Error method panicked: %v", err, value))
}

// describe is the text of an error that is not sound. Its Error method is not called: that of an
// error that wraps itself may never return.
func describe(err error) string {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Sprintf("a nil %T was returned as an error: return nil instead", err)
	}
	return fmt.Sprintf("an error of type %T that wraps itself, or more than %d others, or cannot be unwrapped", err, maxDepth)
}

// Shorten returns text in at most MaxText bytes: what is left out is in the middle, because the
// end of an error's text is often its reason. The result does not keep the memory of text.
func Shorten(text string) string { return ShortenTo(text, MaxText) }

// ShortenTo is Shorten to at most limit bytes, which must be 64 at least.
func ShortenTo(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	gap := fmt.Sprintf(" ... (%d bytes in all) ... ", len(text))
	begin := (limit - len(gap)) * 2 / 3
	end := len(text) - (limit - len(gap) - begin)
	for begin > 0 && !utf8.RuneStart(text[begin]) {
		begin--
	}
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end++
	}
	return strings.Clone(text[:begin]) + gap + text[end:]
}

// unsoundError stands for an error that must not be walked.
type unsoundError struct{ text string }

// Error implements error.
func (e *unsoundError) Error() string { return e.text }

// shortError is an error with another text.
type shortError struct {
	text string
	err  error
}

// Error implements error.
func (e *shortError) Error() string { return e.text }

// Unwrap gives errors.Is and errors.As the error whose text was too long.
func (e *shortError) Unwrap() error { return e.err }
