package manager

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag" //nolint:depguard // Options has the flags of a program
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Parse adds the flags to a FlagSet, parses args, which do not contain the name of the program, and reads the
// environment and the file. It also prints --help.
//
// Errors: every mistake in flags, environment and file at once; arguments that are not flags, because package flag
// ignores the flags after them; flag.ErrHelp after --help. With flag.ExitOnError, Parse prints the errors and exits as
// FlagSet.Parse does, with status 2, or 0 after --help.
func (o *Options) Parse(flags *flag.FlagSet, args []string) error {
	o.AddFlags(flags)
	err := parseAll(flags, args)
	help := errors.Is(err, flag.ErrHelp)
	if help {
		err = flag.ErrHelp
		if flags.Usage != nil {
			flags.Usage()
		} else {
			fmt.Fprintf(flags.Output(), "Usage of %s:\n", flags.Name())
			flags.PrintDefaults()
		}
	} else {
		isSet := map[string]bool{}
		flags.Visit(func(f *flag.Flag) { isSet[f.Name] = true })
		if rest := flags.Args(); len(rest) > 0 && err == nil {
			err = fmt.Errorf("the argument %q is not a flag: write the value of a boolean flag after =, as "+
				"in --%s=false", rest[0], leaderElectFlag)
		}
		err = errors.Join(err, o.Complete(flags, func(name string) bool { return isSet[name] }))
	}
	if err == nil || flags.ErrorHandling() != flag.ExitOnError {
		return err
	}
	if help {
		os.Exit(0) //nolint:forbidigo // as FlagSet.Parse
	}
	fmt.Fprintln(flags.Output(), err)
	os.Exit(2) //nolint:forbidigo // as FlagSet.Parse
	return nil
}

// parseAll is flags.Parse, but it prints nothing, and returns all errors.
func parseAll(flags *flag.FlagSet, args []string) error {
	handling, output, usage := flags.ErrorHandling(), flags.Output(), flags.Usage
	defer func() {
		flags.Init(flags.Name(), handling)
		flags.SetOutput(output)
		flags.Usage = usage
	}()
	flags.Init(flags.Name(), flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	var errs []error
	for {
		err := flags.Parse(args)
		if err == nil || errors.Is(err, flag.ErrHelp) {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, err)
		rest := flags.Args()
		if len(rest) == len(args) {
			rest = rest[1:] // an argument like "---" is not consumed
		}
		args = rest
	}
}

// Complete reads the environment and the file, for the flags for which changed returns false. The error contains every
// mistake. Parse calls it.
func (o *Options) Complete(flags *flag.FlagSet, changed func(name string) bool) error {
	var errs []error
	set := func(origin string, f *flag.Flag, values ...string) {
		for _, value := range values {
			if err := f.Value.Set(value); err != nil {
				errs = append(errs, fmt.Errorf("%s: invalid value %q for flag -%s: %w", origin, value, f.Name, err))
			}
		}
	}
	isSet := map[string]bool{}
	flags.VisitAll(func(f *flag.Flag) {
		isSet[f.Name] = changed(f.Name)
		variable := o.variable(f.Name)
		value := os.Getenv(variable)
		if isSet[f.Name] || value == "" {
			return
		}
		isSet[f.Name] = true
		if f.Name == kubeconfigFlag {
			value = "" // a list of files, which clientcmd reads from the variable
		}
		set("environment variable "+variable, f, value)
	})
	if o.ConfigFile != "" {
		fields, err := readFields(o.ConfigFile)
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			origin := fmt.Sprintf("file %s: field %q", o.ConfigFile, name)
			f := flags.Lookup(name)
			if f == nil || name == configFlag {
				errs = append(errs, fmt.Errorf("%s: unknown field: the fields are the names of the flags, see --help",
					origin))
				continue
			}
			switch values, err := textsOf(fields[name], f); {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %w", origin, err))
			case !isSet[name]:
				set(origin, f, values...)
			}
		}
	}
	errs = append(errs, o.validate())
	return errors.Join(errs...)
}

// variable returns the name of the environment variable of a flag.
func (o *Options) variable(name string) string {
	if name == kubeconfigFlag {
		return "KUBECONFIG"
	}
	return strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(cmp.Or(o.EnvPrefix, "OPERATOR") +
		"_" + name))
}

// readFields returns the fields of a YAML or JSON file.
func readFields(path string) (map[string]json.RawMessage, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the file of --config: %w", err)
	}
	var fields map[string]json.RawMessage
	encoded, err := yaml.YAMLToJSONStrict(text) // rejects duplicate fields, and ignores all documents but the first
	if err == nil {
		err = json.Unmarshal(encoded, &fields)
	}
	if err == nil {
		err = expectOneDocument(text)
	}
	if err != nil {
		return nil, fmt.Errorf("file %s: %w: it must have the names of flags as fields", path, err)
	}
	return fields, nil
}

// expectOneDocument returns an error for a file with several documents, or with text after a JSON object.
func expectOneDocument(text []byte) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for documents := 0; ; {
		var document any // nil before the first "---"
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case document != nil:
			documents++
		}
		if documents > 1 {
			return errors.New("there is more than one document")
		}
	}
}

// textsOf returns a value of the file as the values of a flag: one, or those of a list.
func textsOf(value json.RawMessage, f *flag.Flag) ([]string, error) {
	var elements []json.RawMessage
	if json.Unmarshal(value, &elements) != nil || elements == nil {
		elements = []json.RawMessage{value}
	} else if _, ok := f.Value.(flag.Getter); ok || len(elements) == 0 {
		return nil, fmt.Errorf("%s: it must be one value, not a list, and a list must not be empty", value)
	}
	var texts []string
	for _, e := range elements {
		var text string
		switch {
		case bytes.ContainsAny(e[:1], "{[n"):
			return nil, errors.New("it must be a text, a number, true, false or a list of them")
		case json.Unmarshal(e, &text) == nil:
		case takesText(f):
			return nil, fmt.Errorf("%s is not a text: write it in quotation marks", e) // for YAML, n and off are false
		default:
			text = string(e)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// takesText reports whether the values of a flag are neither numbers nor booleans.
func takesText(f *flag.Flag) bool {
	if getter, ok := f.Value.(flag.Getter); ok {
		switch getter.Get().(type) {
		case bool, int, int64, uint, uint64, float64:
			return false
		}
	}
	return true
}

// list is a flag with several values. The first Set removes the default.
type list struct {
	values *[]string
	isSet  bool
}

// String implements flag.Value.
func (l *list) String() string {
	if l.values == nil {
		return ""
	}
	return strings.Join(*l.values, ",")
}

// Set implements flag.Value.
func (l *list) Set(value string) error {
	if !l.isSet {
		*l.values, l.isSet = nil, true
	}
	for v := range strings.SplitSeq(value, ",") {
		if v != "" {
			*l.values = append(*l.values, v)
		}
	}
	return nil
}
