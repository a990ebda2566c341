"""One small file for each table or figure, and what plans the runs they need, makes them and tells of them.

tables and figures   lambda_tables (1, 5), lambda_pixel_tables (2, 6), main_tables (3, 4), table_7, fast (8, 9),
                     figure_compound, figure_surfaces, figure_unlabeled; better, which goes past the paper
their trials         ramped, selected, plusplus_pixel, shortest
what they are        definition, statements, beside_print, catalog
runs, in advance     scales, planning, passes, lacking
runs, made           reproduction, watchers, notes, settled, terrain, recalled, marked, genuine
evidence of runs     evidence, gathered, begun, asked, united, coherent
told from evidence   measured, editions, verdicts, account, headline, layout, results
the demonstration    demo, gallery
"""
