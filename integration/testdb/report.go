package main

import (
	"fmt"
	"strings"
)

// report prints the last lines: how each database was had, or that it was not, so that nothing was tested on it, and
// why.
func (l *ladder) report() {
	for _, k := range l.settings.kinds {
		if s := l.servers[k.name]; s != nil {
			l.tell.say("%s %s: %s", k.title, s.version, s.how)
		} else {
			l.tell.say("%s: NOT TESTED: %s", k.title, l.why(k))
		}
	}
}

func (l *ladder) why(k *kind) string {
	if len(l.misses[k.name]) == 0 {
		return "testdb was ended before it was up"
	}
	return strings.Join(l.misses[k.name], "; ")
}

// demand is the error for databases that SQLLOCK_TEST_REQUIRE names and that are not there.
func (l *ladder) demand() error {
	var lacking []string
	for _, k := range kinds() {
		if l.settings.required[k.name] && l.servers[k.name] == nil {
			why := "it is not among -databases"
			if len(l.misses[k.name]) > 0 {
				why = l.why(k)
			}
			lacking = append(lacking, fmt.Sprintf("%s (%s)", k.title, why))
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return fmt.Errorf("SQLLOCK_TEST_REQUIRE names what cannot be had: %s", strings.Join(lacking, ", "))
}

// environment is the caller's, with the DSNs of what is up, and of nothing else.
func (l *ladder) environment(controls map[string]string) []string {
	inherited, _ := parseKinds(lookup(l.settings.env, "SQLLOCK_TEST_STARTED"), "SQLLOCK_TEST_STARTED")
	outer := map[string]bool{} // what a testdb around this one started
	for _, k := range inherited {
		outer[k.name] = true
	}
	env := without(l.settings.env, func(name string) bool {
		for _, k := range l.settings.kinds {
			if name == k.env("DSN") || name == k.env("CONTROL") {
				return true
			}
		}
		return name == "SQLLOCK_TEST_STARTED"
	})
	var started []string
	for _, k := range kinds() {
		s := l.servers[k.name]
		switch {
		case s == nil && outer[k.name] && lookup(env, k.env("CONTROL")) != "": // not among -databases, passed on as it is
			started = append(started, k.name)
			continue
		case s == nil:
			continue
		}
		env = append(env, k.env("DSN")+"="+s.dsn)
		control := controls[k.name]
		if s.control == nil && outer[k.name] {
			control = lookup(l.settings.env, k.env("CONTROL"))
		}
		if control != "" {
			env = append(env, k.env("CONTROL")+"="+control)
			started = append(started, k.name)
		}
	}
	return append(env, "SQLLOCK_TEST_STARTED="+strings.Join(started, ","))
}
