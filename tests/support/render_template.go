// Renders a template of the Temporal server image with the environment, as the image's own start script does.
package main

import (
	"os"
	"strings"
	"text/template"
)

func main() {
	environment := map[string]string{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		environment[name] = value
	}
	functions := template.FuncMap{
		"default": func(values ...string) string {
			for _, value := range values {
				if value != "" {
					return value
				}
			}
			return ""
		},
		"lower": strings.ToLower,
		"split": strings.Split,
		"trim":  strings.TrimSpace,
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	parsed := template.Must(template.New("config").Option("missingkey=zero").Funcs(functions).Parse(string(text)))
	if err := parsed.Execute(os.Stdout, map[string]any{"Env": environment}); err != nil {
		panic(err)
	}
}
