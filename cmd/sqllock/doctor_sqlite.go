package main

import "context"

func (d *doctor) sqlite(ctx context.Context) {
	set := map[string]string{}
	for _, name := range []string{"journal_mode", "synchronous", "query_only", "busy_timeout"} {
		var v string
		if err := d.db.QueryRow(ctx, "PRAGMA "+name).Scan(&v); err != nil {
			d.unknown("settings", err, "the file has to be readable")
			return
		}
		set[name] = v
	}
	d.add("isolation", ok, "serializable", "")
	d.add("time zone", ok, "none (times are microseconds since 1970)", "")
	sync := map[string]string{"0": "OFF", "1": "NORMAL", "2": "FULL", "3": "EXTRA"}[set["synchronous"]]
	d.when(sync != "FULL" && sync != "EXTRA", warn, "durability", "synchronous="+sync,
		"a power failure can take back a lock that was granted a moment ago: _pragma=synchronous(FULL)")
	d.when(set["journal_mode"] != "wal", warn, "journal", "journal_mode="+set["journal_mode"], "readers and writers are in each other's way: _pragma=journal_mode(WAL)")
	d.when(set["query_only"] != "0", fail, "read-only", yesNo(set["query_only"] != "0"), "take query_only out of the DSN")
	d.when(set["busy_timeout"] == "0", warn, "busy timeout", set["busy_timeout"]+" ms", "a statement fails at once while another writes: _pragma=busy_timeout(5000)")
	if file := d.dsn.File(); file != "" {
		// A network file system that is known as one has been refused.
		d.when(userSpace(file), warn, "file system", fileSystemName(file), "it may be a network file system (sshfs, s3fs), where SQLite's locks cannot be relied upon: take a local folder")
	}
	d.add("scope", ok, "this host only: "+d.dsn.String(), "")
}
